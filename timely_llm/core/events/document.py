"""The document of event logs: `python -m timely_llm.core.events.document > docs/event_log.md`."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, Field, fields

from timely_llm.core.events.codec import EVENTS, as_json, kind_of
from timely_llm.core.events.probe_events import TopicEvent
from timely_llm.core.events.run_event import RunEvent
from timely_llm.core.events.schema import (
    OpenedEvent,
    PersonEvent,
    ReadyEvent,
    RobotEvent,
    SegmentEvent,
)

WRITERS: Mapping[type[RunEvent], str] = {
    OpenedEvent: "all",
    ReadyEvent: "plan server",
    RobotEvent: "fleet",
    PersonEvent: "talkers",
    TopicEvent: "probe",
}
"""The first event of each writer, in the order of `EVENTS`."""

SHARED: Mapping[str, str] = {
    "id": "id of the request",
    "agent": "name of the robot or person",
    "index": "number of the segment in its plan, from 0",
    "epoch": "number of the plan; each plan after a failed segment adds 1",
    "final": "whether no segment follows",
    "task": "text of the task",
    "urgent": "whether the request is urgent",
    "beta": "time utility of a response in time; no unit",
    "alpha": "slope of the time utility after `ert_s`, per second",
    "ert_s": "expected response time, seconds after the request",
    "due_s": "time at which the next segment or token is due, seconds on the clock of `t`",
    "code": "name of the error code, in lower case; `none`: no error",
    "message": "the error, one sentence; empty: none",
    "error_code": "number of the error code; 0: no error",
    "error_msg": "the error, one sentence; empty: none",
    "slo_class": "name of the service level",
    "prompt_tokens": "number of tokens of the prompt",
    "generated_tokens": "number of generated tokens",
    "recomputed_tokens": "number of tokens with a KV that was computed a second time",
}
"""Fields that mean the same in each event without a line of its own for them."""

TYPES: Mapping[str, str] = {
    "str": "text", "bool": "true or false", "int": "whole number", "float": "number",
    "float | None": "number or null", "tuple[str, ...]": "list of texts",
    "Reasons": "object: [cause, number] by id", "StageTimes | None": "object: lists of seconds",
}  # fmt: skip

HEAD = """# Event log

`python -m timely_llm.core.events.document` writes this document from the classes of
[schema.py](../timely_llm/core/events/schema.py) and `probe_events.py`; a test compares both.

An event log records what a plan server, its robots and its people did, one event a line. The demo,
the benchmarks and `timely-llm report` compute their tables and timelines from event logs. Read one
to find out why a segment came late, after the run or beside it. `timely-llm profile --event-log`
fits the step times of the engine to the kind `step`.

## Writing

| writer | parameter with the file |
|---|---|
| plan server | `event_log`; `explain` adds the kind `plan` |
| fleet | `log` of `robot_fleet` |
| talkers | `log` of `talkers` |
| probe | `log` of a benchmark's probe; the benchmarks set it |

The folder of a demo has one file of the server, the fleet and the talkers for each policy. A writer
appends to its file; no line is ever overwritten. Each life of a writer begins with the event
`opened`. One process at a time writes a file. A new writer refuses a file that is no event log. A
full disk ends the log and logs an error; the writer goes on.

## Reading

```json
EXAMPLE
```

`event` is the kind. `t` is the time of the event, seconds of the machine's monotonic clock: files
of one machine have one time axis, and each boot begins a new one.

`LogReader` of [reader.py](../timely_llm/core/events/reader.py) is the one reader. It returns typed
events, and follows a file that still grows:

```python
from pathlib import Path

from timely_llm.core.events.reader import LogReader, last_life
from timely_llm.core.events.schema import SegmentEvent

events = last_life(LogReader(Path("server.jsonl")).read())
first_s = [event.t for event in events if isinstance(event, SegmentEvent) and event.index == 0]
```

`last_life` drops the events of earlier lives. The reader skips kinds and fields that it does not
know, since a newer version may have written them. It refuses a line that is no event, or that lacks
a field of its kind, with the number of the line. It skips the torn last line of a writer that was
killed. A number that is not finite is null, and is read as NaN. [explain.md](explain.md) has the
causes of the kind `plan`.

## Kinds

"""
EXAMPLE = SegmentEvent(36123.530112, "robot_3-1", 0, 0, "mf(50);", 0.7, False, False, 36124.230112)


def document() -> str:
    """Return the whole document."""
    rows = ["| kind | writer | field | type | meaning |\n", "|---|---|---|---|---|\n"]
    writer = ""
    for event in EVENTS:
        writer = WRITERS.get(event, writer)
        rows.append(f"| `{kind_of(event)}` | {writer} | | | {summary(event)} |\n")
        rows += [_row(event, one) for one in written_fields(event)]
    return HEAD.replace("EXAMPLE", json.dumps(as_json(EXAMPLE))) + "".join(rows)


def written_fields(event: type[RunEvent]) -> list[Field[object]]:
    """Return the fields that lines of a kind have, but for `t`."""
    return [one for one in fields(event) if one.name != "t" and "carried" not in one.metadata]


def summary(event: type[RunEvent]) -> str:
    """Return the sentences of an event's docstring before its attributes, as one line."""
    return " ".join(_docstring(event).partition("\nAttributes:\n")[0].split())


def meaning(event: type[RunEvent], name: str) -> str:
    """Return the meaning of a field and its unit.

    Raises:
        KeyError: neither the event's docstring nor `SHARED` has the field.
    """
    own = dict(_attributes(event))
    return own[name] if name in own else SHARED[name]


def _row(event: type[RunEvent], one: Field[object]) -> str:
    words = meaning(event, one.name).replace("None:", "null:")
    if one.default is not MISSING:
        words += f"; a line without it means `{json.dumps(one.default)}`"
    return f"| | | `{one.name}` | {TYPES[str(one.type)]} | {words} |\n"


def _docstring(event: type[RunEvent]) -> str:
    return inspect.cleandoc(event.__doc__ or "")


def _attributes(event: type[RunEvent]) -> Iterator[tuple[str, str]]:
    """Yield the lines about attributes in an event's docstring: name and meaning."""
    lines = _docstring(event).partition("\nAttributes:\n")[2]
    for one in re.split(r"\n(?= {4}\w)", "\n" + lines):
        names, _, words = one.partition(": ")
        for name in names.split(","):
            yield name.strip(), " ".join(words.split()).rstrip(".")


if __name__ == "__main__":
    print(document(), end="")
