"""Events as event logs have them: from an event to the mapping of a line, and back.

An event log has one event a line: `{"event": kind, "t": seconds, ...}`. The kind is the name of the
event's class, or the one in `_KIND_NAMES`; the other keys are its fields.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, dataclass, fields
from typing import Any

from timely_llm.core.arguments import is_number
from timely_llm.core.errors import TimelyError
from timely_llm.core.events.probe_events import PROBE_EVENTS, ProbeFailedEvent
from timely_llm.core.events.run_event import RunEvent
from timely_llm.core.events.schema import RUN_EVENTS, PlanRequestEvent, StepPlanEvent
from timely_llm.core.reason import Reasons, reason_from_json
from timely_llm.core.step import StageTimes
from timely_llm.core.text import quoted

EVENTS = (*RUN_EVENTS, *PROBE_EVENTS)
"""The events that event logs have."""


class EventError(TimelyError):
    """A mapping is not the event that its kind says."""


def as_json(event: RunEvent) -> dict[str, Any]:
    """Return an event as a line of an event log has it.

    A field with its default value is left out. A number that is not finite is None: JSON has none.

    Raises:
        KeyError: event logs have no such event.
    """
    kind, written = _WRITTEN[type(event)]
    made: dict[str, Any] = {"event": kind, "t": event.t}
    for one in written:
        value = getattr(event, one.name)
        if value != one.default:
            made[one.name] = one.to_json(value)
    return made


def from_json(line: Mapping[str, Any]) -> RunEvent | None:
    """Return the event of a line; None: a kind that this version does not know.

    Keys that this version does not know are ignored.

    Args:
        line: has "event" and "t".

    Raises:
        EventError: a field is missing or is not of its type; one sentence.
    """
    kind = line["event"]
    known = _KINDS.get(kind) if isinstance(kind, str) else None
    if known is None:
        return None
    t = line["t"]
    if not is_number(t):
        raise EventError(f"t of the event {kind!r} must be seconds, not {quoted(t)}")
    values = []
    for one in _WRITTEN[known][1]:
        value = line.get(one.name, one.default)
        if value is MISSING:
            raise EventError(f"the event {kind!r} at {t:g} s has no {one.name!r}")
        try:
            values.append(one.from_json(value))
        except ValueError as error:
            raise EventError(f"the {kind} at {t:g} s: {one.name}: {error}") from error
    return known(t, *values)


def kind_of(event: type[RunEvent]) -> str:
    """Return the kind of an event as event logs have it."""
    if event in _KIND_NAMES:
        return _KIND_NAMES[event]
    name = event.__name__.removesuffix("Event")
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


def is_written(event: RunEvent) -> bool:
    """Return whether event logs have such an event."""
    return type(event) in _WRITTEN


@dataclass(frozen=True, slots=True)
class _Written:
    """A field as event logs have it."""

    name: str
    default: Any
    to_json: Callable[[Any], Any]
    from_json: Callable[[Any], Any]

    @classmethod
    def of(cls, one: Field[Any]) -> _Written:
        form = _FORMS.get(str(one.type))
        if form is None:
            raise TypeError(
                f"events: the field {one.name!r} has the type {one.type}: add a form for it to"
                " _FORMS in core/events/codec.py"
            )
        return cls(one.name, one.default, *form)


def _finite(value: float | None) -> float | None:
    """Return a number; None: there is none, or it is not finite."""
    return value if value is not None and math.isfinite(value) else None


def _same(value: Any) -> Any:
    return value


def _a(kind: str, test: Callable[[Any], bool]) -> Callable[[Any], Any]:
    """Return what checks a value."""

    def check(value: Any) -> Any:
        if not test(value):
            raise ValueError(f"it must be {kind}, not {quoted(value)}")
        return value

    return check


def _texts(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list | tuple) or not all(isinstance(one, str) for one in value):
        raise ValueError(f"it must be a list of texts, not {quoted(value)}")
    return tuple(value)


def _reasons(value: Any) -> Reasons:
    if not isinstance(value, dict):
        raise ValueError(f"it must be reasons by request, not {quoted(value)}")
    return tuple((key, reason_from_json(reason)) for key, reason in value.items())


def _stage_times(value: Any) -> StageTimes | None:
    if value is None:
        return None
    names = StageTimes._fields
    if not isinstance(value, dict) or not all(isinstance(value.get(n), list) for n in names):
        raise ValueError(f"it must have the lists {', '.join(names)}, not {quoted(value)}")
    times = StageTimes(*(tuple(value[name]) for name in names))
    if not all(is_number(one) for part in times for one in part) or not times.fit:
        raise ValueError("it must have seconds, at least 0, of each stage and each link")
    return times


_number = _a("a number", is_number)

_KIND_NAMES: Mapping[type[RunEvent], str] = {
    PlanRequestEvent: "request",
    StepPlanEvent: "plan",
    ProbeFailedEvent: "failed",
}
"""Kinds that differ from their classes' names, so that event logs keep their words."""

_FORMS: Mapping[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "str": (_same, _a("a text", lambda value: isinstance(value, str))),
    "bool": (_same, _a("true or false", lambda value: isinstance(value, bool))),
    "int": (
        _same,
        _a("a whole number", lambda value: isinstance(value, int) and not isinstance(value, bool)),
    ),
    "float": (_finite, lambda value: math.nan if value is None else _number(value)),
    "float | None": (
        _finite,
        _a("a number or null", lambda value: value is None or is_number(value)),
    ),
    "tuple[str, ...]": (list, _texts),
    "StageTimes | None": (
        lambda times: {name: list(part) for name, part in times._asdict().items()},
        _stage_times,
    ),
    "Reasons": (lambda why: {key: reason.as_json() for key, reason in why}, _reasons),
}
"""By a field's type: how its value is written, and how it is read."""

_WRITTEN: Mapping[type[RunEvent], tuple[str, tuple[_Written, ...]]] = {
    event: (
        kind_of(event),
        tuple(
            _Written.of(one)
            for one in fields(event)
            if one.name != "t" and "carried" not in one.metadata
        ),
    )
    for event in EVENTS
}
_KINDS: Mapping[str, type[RunEvent]] = {kind: event for event, (kind, _) in _WRITTEN.items()}
