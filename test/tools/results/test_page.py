"""The command lines of pages."""

from __future__ import annotations

from pathlib import Path

import pytest

from test.tools.results.tiny import COMMAND
from tools.results.page import Command, ResultsError, deciding
from tools.results.pages import PAGES, chosen


def test_a_command_is_what_a_user_would_type() -> None:
    assert " ".join(COMMAND.words()) == (
        "timely-llm experiment fleet --robots 1,2 --duration 15 --policies stream,deadline"
        " --seeds 1"
    )
    assert COMMAND.words(seeds=4)[-2:] == ["--seeds", "4"]
    assert "--seeds" not in Command("a", "slice-static", has_seeds=False).words(seeds=4)


def test_published_data_is_named_or_asked_for() -> None:
    command = Command("a", "mixed", ("--trace", "{published}/a.json"))
    assert command.words(published=Path("/data"))[-1] == "/data/a.json"
    with pytest.raises(ResultsError, match="a reads published data: name its folder by --publi"):
        command.words()


def test_processes_and_files_do_not_decide_results() -> None:
    words = deciding("timely-llm experiment fleet --jobs 2 --seeds 1 --json 'a b.json' --html x")
    assert words == ["timely-llm", "experiment", "fleet", "--seeds", "1"]


def test_a_command_that_cannot_be_read_is_one_sentence() -> None:
    with pytest.raises(ResultsError, match="a document has an impossible command: No closing quo"):
        deciding("timely-llm 'experiment")


def test_pages_and_documents_have_names_of_their_own() -> None:
    assert len({page.name for page in PAGES}) == len(PAGES)
    commands = [command.name for page in PAGES for command in page.commands]
    assert len(set(commands)) == len(commands)


def test_an_unknown_page_is_refused() -> None:
    assert chosen([]) == list(PAGES)
    assert [page.name for page in chosen(["fleet"])] == ["fleet"]
    with pytest.raises(ResultsError, match="there is no page 'floet': choose of fleet"):
        chosen(["floet"])
