"""The command lines of pages."""

from __future__ import annotations

from pathlib import Path

import pytest

from test.tools.results.tiny import COMMAND
from tools.results.page import Command, ResultsError, deciding, shown


def test_a_command_is_what_a_user_would_type() -> None:
    line = "timely-llm experiment fleet --robots 1,2 --duration 15 --policies stream,deadline"
    assert COMMAND.experiment == "fleet"
    assert " ".join(COMMAND.words()) == COMMAND.shown == f"{line} --seeds 1"
    assert COMMAND.words(seeds=4)[-2:] == ["--seeds", "4"]
    assert "--seeds" not in Command("a", "slice-static", seeds=0).words(seeds=4)


def test_published_data_is_named_or_asked_for() -> None:
    command = Command("a", "mixed --trace {published}/a.json", seeds=2)
    assert command.words(published=Path("/data"))[4] == "/data/a.json"
    assert command.shown == "timely-llm experiment mixed --trace a.json --seeds 2"
    with pytest.raises(ResultsError, match="a reads published data: name its folder by --publi"):
        command.words()


def test_processes_and_files_do_not_decide_results() -> None:
    words = deciding("timely-llm experiment fleet --jobs 2 --seeds 1 --json 'a b.json' --html x")
    assert words == ["timely-llm", "experiment", "fleet", "--seeds", "1"]


def test_readers_see_files_without_their_folders() -> None:
    assert shown("timely-llm experiment mixed --trace '/a b/c d.json' --jobs 2") == (
        "timely-llm experiment mixed --trace 'c d.json'"
    )


def test_a_command_that_cannot_be_read_is_one_sentence() -> None:
    with pytest.raises(ResultsError, match="a document has an impossible command: No closing quo"):
        deciding("timely-llm 'experiment")
