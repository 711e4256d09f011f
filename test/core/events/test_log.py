"""The event log."""

import json
import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from timely_llm.core.errors import ConfigurationError
from timely_llm.core.events.codec import as_json
from timely_llm.core.events.log import FileEventLog, is_event
from timely_llm.core.events.reader import LogReader, last_life
from timely_llm.core.events.schema import CompleteEvent, OpenedEvent, ReadyEvent, StepEvent


def test_each_event_is_a_line_that_is_there_at_once(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    event_log = FileEventLog(path)
    event_log.write(StepEvent(1.2500001, 0.5, ("a",)))
    opened, step = map(json.loads, path.read_text().splitlines())
    assert opened["event"] == "opened"
    assert step == {"event": "step", "t": 1.25, "s": 0.5, "ids": ["a"]}
    event_log.write(CompleteEvent(2.0, "a"))
    assert len(path.read_text().splitlines()) == 3


def test_a_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="cannot write the event log"):
        FileEventLog(tmp_path / "no" / "folder")


def test_a_full_disk_ends_the_event_log_and_nothing_else() -> None:
    event_log = FileEventLog("/dev/full")
    for _ in range(3):
        event_log.write(ReadyEvent(1.0))


def test_a_second_life_follows_the_first(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    for t in (1.0, 2.0):
        event_log = FileEventLog(path)
        event_log.write(ReadyEvent(t))
        event_log.close()
        event_log.write(ReadyEvent(9.0))  # of a life that is over
    events = LogReader(path).read()
    assert [type(e) for e in events] == [OpenedEvent, ReadyEvent] * 2
    assert last_life(events)[1:] == [ReadyEvent(2.0)]


@given(cut=st.integers(0, 200))
def test_a_line_that_was_torn_is_passed_over(cut: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "events.jsonl")
        event_log = FileEventLog(path)
        for number in range(4):
            event_log.write(ReadyEvent(float(number)))
        event_log.close()
        whole = path.read_bytes()
        path.write_bytes(whole[: max(len(whole) - cut, len(whole.splitlines(True)[0]))])
        before = path.read_bytes()
        FileEventLog(path).close()
        assert path.read_bytes().startswith(before), "nothing is taken away"
        events = LogReader(path).read()
        assert isinstance(events[-1], OpenedEvent)
        left = before[: before.rfind(b"\n") + 1].splitlines()
        complete = [json.loads(line) for line in left]
        torn = before[len(b"".join(line + b"\n" for line in left)) :]
        if is_event(torn):  # only its newline was missing
            complete.append(json.loads(torn))
        assert [as_json(e) for e in events[:-1]] == complete


@pytest.mark.parametrize(
    "content", ["# Notes\n", "[1, 2]\n", '{"event": 1}\n', "\0" * 100, '{"a": 1, "t": 2}', "\n"]
)
def test_a_file_of_another_kind_is_not_touched(tmp_path: Path, content: str) -> None:
    path = tmp_path / "precious"
    path.write_text(content)
    with pytest.raises(ConfigurationError, match="its first line is no event"):
        FileEventLog(path)
    assert path.read_text() == content


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path, tmp_path / "pipe"):
        with pytest.raises(ConfigurationError, match="it is not a file"):
            FileEventLog(path)


def test_one_process_writes_an_event_log(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    event_log = FileEventLog(path)
    with pytest.raises(ConfigurationError, match="another process is writing it"):
        FileEventLog(path)
    event_log.close()
    FileEventLog(path).close()
