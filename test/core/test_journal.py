"""The journal."""

import json
from pathlib import Path

import pytest

from timely_llm.core.errors import ConfigurationError
from timely_llm.core.journal import FileJournal


def test_each_event_is_a_line_that_is_there_at_once(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    journal = FileJournal(path)
    journal.write("step", 1.25, ids=["a"])
    assert json.loads(path.read_text().splitlines()[-1]) == {
        "event": "step",
        "t": 1.25,
        "ids": ["a"],
    }
    journal.write("end", 2.0)
    assert len(path.read_text().splitlines()) == 3


def test_a_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="cannot write the journal"):
        FileJournal(tmp_path / "no" / "folder")


def test_a_full_disk_ends_the_journal_and_nothing_else() -> None:
    journal = FileJournal("/dev/full")
    for _ in range(3):
        journal.write("step", 1.0)
