"""How a server uses its parameters."""

from __future__ import annotations

from pathlib import Path

import pytest

from timely_llm.ros.server import setup
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
    grammar = setup._answer_grammar(values)
    assert grammar == (PROSE_GRAMMAR if kept else None)
