from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from timely_llm.processes.log_reader import LineAssembler, LogError, LogReader

EVENTS = st.lists(
    st.fixed_dictionaries(
        {"event": st.sampled_from(["ask", "segment", "done"]), "t": st.floats(0, 1e6)},
        optional={"text": st.text(), "ids": st.lists(st.text())},
    ),
    max_size=8,
)


@given(events=EVENTS, cuts=st.lists(st.integers(0, 2000)), as_ascii=st.booleans())
def test_any_cuts_give_the_same_events(
    events: list[dict[str, object]], cuts: list[int], as_ascii: bool
) -> None:
    data = "".join(json.dumps(e, ensure_ascii=as_ascii) + "\n" for e in events).encode()
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
        assert reader.read() == [{"event": "ready", "t": 1.5}]
        file.write('ep", "t": 2}\n')
        assert reader.read() == [{"event": "step", "t": 2}]
    assert reader.read() == []


@pytest.mark.parametrize("line", ["nonsense", "[1, 2]", '{"event": "ask"}', ""])
def test_a_line_that_is_no_event_is_named(tmp_path: Path, line: str) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text('{"event": "ready", "t": 1}\n' + line + "\n")
    with pytest.raises(LogError, match=r"log\.jsonl: line 2 must be a JSON object") as error:
        LogReader(path).read()
    assert repr(line) in str(error.value)
