from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from timely_llm.core.events.codec import as_json
from timely_llm.core.events.reader import LineAssembler, LogError, LogReader
from timely_llm.core.events.run_event import RunEvent
from timely_llm.core.events.schema import AnswerEvent, ReadyEvent, StepEvent

EVENTS = st.lists(
    st.builds(ReadyEvent, st.floats(0, 1e6))
    | st.builds(AnswerEvent, st.floats(0, 1e6), st.text(), st.text())
    | st.builds(StepEvent, st.floats(0, 1e6), st.floats(0, 1), st.tuples(st.text(), st.text())),
    max_size=8,
)


@given(events=EVENTS, cuts=st.lists(st.integers(0, 2000)), as_ascii=st.booleans())
def test_any_cuts_give_the_same_events(
    events: list[RunEvent], cuts: list[int], as_ascii: bool
) -> None:
    data = "".join(json.dumps(as_json(e), ensure_ascii=as_ascii) + "\n" for e in events).encode()
    edges = [0, *sorted(cut for cut in cuts if cut < len(data)), len(data)]
    assembler = LineAssembler()
    read = [event for begin, end in pairwise(edges) for event in assembler.feed(data[begin:end])]
    assert read == events


def test_a_half_written_line_is_kept_until_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    reader = LogReader(path)
    assert reader.read() == []
    with path.open("w", buffering=1) as file:
        file.write('{"event": "ready", "t": 1.5}\n{"event": "st')
        file.flush()
        assert reader.read() == [ReadyEvent(1.5)]
        file.write('ep", "t": 2, "s": 1, "ids": []}\n')
        assert reader.read() == [StepEvent(2, 1, ())]
    assert reader.read() == []


@pytest.mark.parametrize("line", ["nonsense", "[1, 2]", '{"event": "ask"}', ""])
def test_a_line_that_is_no_event_is_named(tmp_path: Path, line: str) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text('{"event": "ready", "t": 1}\n' + line + "\n")
    with pytest.raises(LogError, match=r"log\.jsonl: line 2 must be a JSON object") as error:
        LogReader(path).read()
    assert repr(line) in str(error.value)


def test_an_event_without_a_field_is_named_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text('{"event": "ready", "t": 1}\n{"event": "step", "t": 2.5, "s": 0.1}\n')
    with pytest.raises(
        LogError, match=r"log\.jsonl: line 2: the event 'step' at 2.5 s has no 'ids'"
    ):
        LogReader(path).read()
