"""Each document is made once, by the real command."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from test.tools.results.tiny import COMMAND, PAGE, run
from timely_llm.experiments.results.document import read_run, write_run
from tools.results.page import Command
from tools.results.run import Runs, code, made_by_this_code, run_pages


def test_a_finished_document_is_not_run_again_and_a_failure_does_not_stop_the_others(
    tmp_path: Path,
) -> None:
    bad = Command("bad", "fleet --policies no-such-policy", minutes=3)
    far = Command("far", "mixed --trace {published}/a.json", minutes=2)
    page = replace(PAGE, commands=(COMMAND, far, bad))
    said: list[str] = []
    assert run_pages([page], Runs(tmp_path), say=said.append) == 2
    assert said[0].startswith("bad failed: status ") and "no-such-policy" in said[0]
    assert said[1].startswith("far failed: far reads published data")
    assert said[2].startswith("tiny: " + " ".join(COMMAND.words()) + " (0.")
    assert read_run(tmp_path / "tiny.json").rows == run().rows
    said.clear()
    assert run_pages([PAGE], Runs(tmp_path), processes=2, say=said.append) == 0
    assert said == [f"tiny: {tmp_path / 'tiny.json'} is finished"]


def test_another_command_needs_another_document(tmp_path: Path) -> None:
    write_run(run(), tmp_path / "tiny.json")
    assert Runs(tmp_path, any_code=True).is_finished(COMMAND)
    assert not Runs(tmp_path, seeds=2, any_code=True).is_finished(COMMAND)


def test_a_document_of_other_code_is_made_again(tmp_path: Path) -> None:
    write_run(run(), tmp_path / "tiny.json")
    (tmp_path / "tiny.code").write_text("other\n")
    assert not made_by_this_code(COMMAND, tmp_path)
    assert not Runs(tmp_path).is_finished(COMMAND)
    (tmp_path / "tiny.code").write_text(code())
    assert Runs(tmp_path).is_finished(COMMAND)


def test_a_damaged_document_is_not_finished(tmp_path: Path) -> None:
    (tmp_path / "tiny.json").write_text("{")
    runs = Runs(tmp_path, any_code=True)
    assert not runs.is_finished(COMMAND)
    write_run(run().model_copy(update={"command": "timely-llm 'experiment"}), tmp_path / "t.json")
    assert not runs.is_finished(replace(COMMAND, name="t"))
