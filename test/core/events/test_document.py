"""The page of event logs says what the classes of events say."""

from __future__ import annotations

import json
from dataclasses import MISSING
from pathlib import Path

import pytest

from timely_llm.core.events.codec import EVENTS, from_json, kind_of
from timely_llm.core.events.document import (
    SHARED,
    WRITERS,
    document,
    meaning,
    summary,
    written_fields,
)
from timely_llm.core.events.run_event import RunEvent
from timely_llm.core.events.schema import SegmentEvent

PAGE = Path(__file__).parents[3] / "docs" / "event_log.md"
UNITS = ("second", "words a second", "no unit", "relative", "per second", "utility")
FIELDS = [
    pytest.param(event, one.name, str(one.type), id=f"{kind_of(event)}.{one.name}")
    for event in EVENTS
    for one in written_fields(event)
]


def test_the_page_is_current() -> None:
    assert PAGE.read_text(encoding="utf-8") == document(), (
        "run `python -m timely_llm.core.events.document > docs/event_log.md`"
    )


@pytest.mark.parametrize(("event", "name", "kind"), FIELDS)
def test_every_field_has_a_meaning_and_every_number_a_unit(
    event: type[RunEvent], name: str, kind: str
) -> None:
    words = meaning(event, name)
    assert words
    if name.endswith("_s") or name == "s" or kind.startswith("float"):
        assert any(unit in words for unit in UNITS), words
    if kind == "int":
        assert words.startswith("number of"), words


def test_every_kind_has_a_row_and_a_row_for_each_of_its_fields() -> None:
    rows = [
        [cell.strip() for cell in line.split(" |")]
        for line in document().partition("\n## Kinds\n\n")[2].splitlines()[2:]
    ]
    assert all(len(row) == 6 for row in rows), "no cell holds a bar"
    assert [row[0] for row in rows if row[0] != "|"] == [f"| `{kind_of(e)}`" for e in EVENTS]
    assert len(rows) == len(EVENTS) + len(FIELDS)


def test_every_kind_has_a_writer_and_no_shared_meaning_is_left_over() -> None:
    assert next(iter(WRITERS)) is EVENTS[0]
    assert list(WRITERS) == [event for event in EVENTS if event in WRITERS]
    names = {one.name for event in EVENTS for one in written_fields(event)}
    assert names >= SHARED.keys()
    assert all(summary(event).endswith(".") for event in EVENTS)


def test_a_field_that_a_line_may_lack_has_its_default_on_the_page() -> None:
    rows = document().splitlines()
    for event in EVENTS:
        for one in written_fields(event):
            row = f"| | | `{one.name}` |"
            mine = rows[rows.index(first_row(event)) + 1 :]
            line = next(line for line in mine if line.startswith(row))
            assert ("a line without it means" in line) == (one.default is not MISSING)


def first_row(event: type[RunEvent]) -> str:
    start = f"| `{kind_of(event)}` |"
    return next(line for line in document().splitlines() if line.startswith(start))


def test_the_line_of_the_page_is_an_event_that_the_code_of_the_page_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = document()
    (line,) = (line for line in page.splitlines() if line.startswith('{"event"'))
    event = from_json(json.loads(line))
    assert isinstance(event, SegmentEvent)
    (tmp_path / "server.jsonl").write_text(line + "\n")
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    exec(page.split("```python\n")[1].split("```")[0], names)
    assert names["first_s"] == [event.t]
