"""Each document is made once, by the real command."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from test.tools.results.tiny import COMMAND, PAGE, run
from timely_llm.experiments.results.document import read_run, write_run
from tools.results.page import Command
from tools.results.run import is_finished, run_pages


def test_a_finished_document_is_not_run_again_and_a_failure_does_not_stop_the_others(
    tmp_path: Path,
) -> None:
    bad = Command("bad", "fleet", ("--policies", "no-such-policy"))
    far = Command("far", "mixed", ("--trace", "{published}/a.json"))
    page = replace(PAGE, commands=(bad, far, COMMAND))
    said: list[str] = []
    assert run_pages([page], tmp_path, say=said.append) == 2
    assert said[1].startswith("bad failed: status ") and "no-such-policy" in said[1]
    assert said[2].startswith("far failed: far reads published data")
    assert said[3] == "tiny: " + " ".join(COMMAND.words())
    assert read_run(tmp_path / "tiny.json").rows == run().rows
    said.clear()
    assert run_pages([replace(page, commands=(COMMAND,))], tmp_path, say=said.append) == 0
    assert said == [f"tiny: {tmp_path / 'tiny.json'} is finished"]


def test_another_command_needs_another_document(tmp_path: Path) -> None:
    write_run(run(), tmp_path / "tiny.json")
    assert is_finished(COMMAND, COMMAND.words(), tmp_path)
    assert not is_finished(COMMAND, COMMAND.words(seeds=2), tmp_path)


def test_a_damaged_document_is_not_finished(tmp_path: Path) -> None:
    (tmp_path / "tiny.json").write_text("{")
    assert not is_finished(COMMAND, COMMAND.words(), tmp_path)
    write_run(run().model_copy(update={"command": "timely-llm 'experiment"}), tmp_path / "t.json")
    assert not is_finished(replace(COMMAND, name="t"), COMMAND.words(), tmp_path)
