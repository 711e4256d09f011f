"""Events for tests, from lines that name only what matters."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from timely_llm.core.events.codec import EVENTS, from_json, kind_of
from timely_llm.core.events.run_event import CARRIED, RunEvent

Line = dict[str, Any]
"""A line of an event log."""
KINDS = {kind_of(event): event for event in EVENTS}
EMPTY: Mapping[str, Any] = {
    "str": "", "int": 0, "float": 0.0, "float | None": None, "bool": False, "tuple[str, ...]": [],
    "Reasons": {}, "StageTimes | None": None,
}  # fmt: skip


def whole(line: Mapping[str, Any]) -> dict[str, Any]:
    """Return a line with all fields of its kind: the missing ones are empty."""
    names = {one.name: str(one.type) for one in written(KINDS[line["event"]])}
    return {"t": 0.0} | {name: EMPTY[kind] for name, kind in names.items()} | dict(line)


def event(line: Mapping[str, Any]) -> RunEvent:
    """Return the event of a line; fields that it does not name are empty."""
    made = from_json(whole(line))
    assert made is not None
    return made


def written(kind: type[RunEvent]) -> list[dataclasses.Field[Any]]:
    """Return the fields that event logs have, but for the time."""
    return [one for one in dataclasses.fields(kind) if one.name != "t" and one.metadata != CARRIED]
