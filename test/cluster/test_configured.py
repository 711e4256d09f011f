"""How a server uses its parameters."""

from __future__ import annotations

from pathlib import Path

import pytest

from timely_llm.cluster import configured
from timely_llm.core.errors import ConfigurationError
from timely_llm.policies.deadline.policy import Deadline
from timely_llm.policies.timely import Timely
from timely_llm.skills.prose import PROSE_GRAMMAR


@pytest.mark.parametrize(
    ("engine", "wanted", "declared", "kept"),
    [
        ("transformers", "auto", None, True),  # the embedded model
        ("transformers", "auto", True, True),
        ("transformers", "auto", False, False),  # a real model is left alone
        ("vllm", "auto", True, True),
        ("transformers", "always", False, True),
        ("transformers", "never", None, False),
        ("simulated", "always", None, False),  # its words are no model's
    ],
)
def test_answers_are_kept_to_prose_if_the_model_or_the_user_says_so(
    tmp_path: Path, engine: str, wanted: str, declared: bool | None, kept: bool
) -> None:
    model = ""
    if declared is not None:
        (tmp_path / "config.json").write_text('{"prose_answers": true}' if declared else "{}")
        model = str(tmp_path)
    values = {"engine": engine, "model": model, "prose_answers": wanted}
    grammar = configured._answer_grammar(values)
    assert grammar == (PROSE_GRAMMAR if kept else None)


TIMELY = {"timely_rows": 8, "timely_admissions": 1, "timely_segment_tokens": 10, "lead_s": -1.0}


def test_options_of_the_policy_win_over_its_parameters() -> None:
    made = configured._policy({"policy": "timely", "policy_options": ["rows=4"], **TIMELY})
    assert isinstance(made, Timely) and (made.rows, made.admissions) == (4, 1)
    options = ["", "people=2", "urgent=1.5"]
    deadline = configured._policy({"policy": "deadline", "policy_options": options, **TIMELY})
    assert isinstance(deadline, Deadline) and (deadline.people, deadline.urgent) == (2.0, 1.5)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("people", "'people' is no option of deadline: choose of kappa=..., lead_s="),
        ("rows=4", "'rows=4' is no option of deadline: choose of kappa"),
        ("people=many", "deadline:people must be a number from 0 on or inf, not 'many'"),
        ("urgent=11", "deadline: urgent must be from 0 to 10, not 11"),
    ],
)
def test_an_impossible_option_of_the_policy_is_refused_in_a_sentence(text: str, says: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        configured._policy({"policy": "deadline", "policy_options": [text], **TIMELY})
    assert str(refused.value).startswith(says)


def test_a_journal_of_a_model_that_was_changed_under_its_name_is_set_aside(tmp_path: Path) -> None:
    model = tmp_path / "model"
    model.mkdir()
    (model / "config.json").write_text("{}")
    values = dict.fromkeys(("cloud_url", "dtype", "engine_args"), "") | {
        "recovery_journal": str(tmp_path / "journal"), "engine": "transformers",
        "model": str(model), "result_timeout_s": 300.0, "max_results": 8,
        "recovery_sync": False,
    }  # fmt: skip
    for starts in (1, 2):
        journal = configured._journal(values)
        assert journal is not None
        assert journal.starts == starts
        journal.close()
    (model / "config.json").write_text('{"vocab_size": 7}')
    journal = configured._journal(values)
    assert journal is not None
    assert journal.starts == 1
    journal.close()
    assert (tmp_path / "journal.set_aside").exists()


def test_a_recovery_journal_is_refused_beside_a_cloud(tmp_path: Path) -> None:
    values = {"recovery_journal": str(tmp_path / "journal"), "cloud_url": "http://here"}
    with pytest.raises(ConfigurationError, match="leave recovery_journal or cloud_url out"):
        configured._journal(values)
    assert configured._journal({"recovery_journal": ""}) is None
