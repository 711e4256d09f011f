"""Rows of some policies join a document as if all had been run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from test.tools.results.tiny import COMMAND, PAGE, run
from timely_llm.experiments.results.document import read_run, write_run
from tools.results.page import Command, ResultsError
from tools.results.part import policies_of, with_rows
from tools.results.run import Runs, code, made_by_this_code, run_pages

ORDER = policies_of(COMMAND)


def test_a_policy_that_runs_alone_gives_the_document_of_a_whole_run(tmp_path: Path) -> None:
    only = tuple(row for row in run().rows if row["policy"] == "deadline")
    write_run(run().model_copy(update={"rows": only}), tmp_path / "tiny.json")
    (tmp_path / "tiny.code").write_text("other\n")
    said: list[str] = []
    runs = Runs(tmp_path, any_code=True, policies=("stream", "slice"))
    assert run_pages([PAGE], runs, say=said.append) == 0
    assert said[0].startswith("tiny: timely-llm experiment fleet") and "stream" in said[0]
    made = read_run(tmp_path / "tiny.json")
    assert made.rows == run().rows
    assert runs.is_finished(COMMAND)
    assert (tmp_path / "tiny.code").read_text().split() == ["other", code()]
    assert not made_by_this_code(COMMAND, tmp_path)
    assert list(tmp_path.glob("*.part*")) == []


@pytest.mark.parametrize("policy", ORDER)
def test_newer_rows_replace_those_of_the_same_policy_where_they_stood(policy: str) -> None:
    newer = tuple(row | {"utility": 9.0} for row in run().rows if row["policy"] == policy)
    part = run().model_copy(update={"rows": newer})
    made = with_rows(run(), part, ORDER, COMMAND.words())
    assert [(r["robots"], r["policy"]) for r in made.rows] == [
        (r["robots"], r["policy"]) for r in run().rows
    ]
    assert {r["utility"] for r in made.rows if r["policy"] == policy} == {9.0}
    assert [r for r in made.rows if r["policy"] != policy] == [
        r for r in run().rows if r["policy"] != policy
    ]


def test_a_note_about_a_policy_that_did_not_run_again_stays() -> None:
    whole = run().model_copy(update={"notes": ("about one", "about both")})
    part = run().model_copy(update={"notes": ("about both", "about the other")})
    made = with_rows(whole, part, ORDER, COMMAND.words())
    assert made.notes == ("about one", "about both", "about the other")


def test_rows_of_another_command_do_not_join() -> None:
    longer = replace(COMMAND, line=COMMAND.line.replace("15", "20"))
    with pytest.raises(ResultsError, match="made by another command"):
        with_rows(run(), run(), ORDER, longer.words())


def test_rows_without_a_column_of_the_others_do_not_join() -> None:
    lacking = tuple(
        {name: value for name, value in row.items() if name != "utility"} for row in run().rows
    )
    with pytest.raises(ResultsError, match="have no utility: run the whole command"):
        with_rows(run(), run().model_copy(update={"rows": lacking}), ORDER, COMMAND.words())


def test_a_command_without_the_policy_runs_nothing_and_a_missing_document_is_an_error(
    tmp_path: Path,
) -> None:
    said: list[str] = []
    assert run_pages([PAGE], Runs(tmp_path, policies=("slice",)), say=said.append) == 0
    assert said == ["tiny: tiny has none of these policies"]
    assert run_pages([PAGE], Runs(tmp_path, policies=("stream",)), say=said.append) == 1
    assert said[1].startswith("tiny failed: cannot read")


def test_the_policies_of_a_command_are_named_or_the_experiments() -> None:
    assert policies_of(COMMAND) == ("stream", "deadline")
    assert "deadline:gate" in policies_of(Command("mixed", "mixed"))
