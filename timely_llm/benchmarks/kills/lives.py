"""What the processes of a run have written, and the lives of the one that clients ask."""

from __future__ import annotations

import bisect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from timely_llm.benchmarks.kills.schedule import FACES, SERVER
from timely_llm.core.events.probe_events import KillEvent
from timely_llm.core.events.run_event import RunEvent

Events = Sequence[RunEvent]


@dataclass(frozen=True)
class Fault:
    """Something that must not happen.

    Attributes:
        check: which rule is broken.
        evidence: what shows it.
    """

    check: str
    evidence: str


@dataclass(frozen=True)
class Logs:
    """What the processes of a run have written.

    Attributes:
        kills: what was done to processes.
        listener: what the dispatcher published, and what was served at the end.
        robots, people: what clients saw and did.
        servers: what servers did, by the name of a life.
        said: lines that processes printed, by the name of a life.
    """

    kills: Events
    listener: Events
    robots: Events
    people: Events
    servers: Mapping[str, Events]
    said: Mapping[str, Sequence[str]]


class Lives:
    """The lives of the process that clients ask, and when each ended.

    Attributes:
        journal: it is a server with a recovery journal; else it is a dispatcher.
        harmed_s: when it was killed or stopped.
    """

    def __init__(self, kills: Events) -> None:
        mine = [e for e in kills if isinstance(e, KillEvent) and e.process in FACES]
        self.journal = any(e.process == SERVER for e in mine)
        self._begun_s = [e.t for e in mine if e.kind == "started"]
        self.harmed_s = [e.t for e in mine if e.kind in ("killed", "stopped", "died")]
        self._ended_s = [e.t for e in mine if e.kind in ("killed", "died")]

    def at(self, t: float) -> int:
        """Return the number of the life that published what came at a time; the first is 0."""
        return max(bisect.bisect_right(self._begun_s, t) - 1, 0)

    def begun_s(self, life: int) -> float:
        """Return when a life began."""
        return self._begun_s[life]

    def ended(self, life: int) -> bool:
        """Return whether a life ended during the run."""
        return life < len(self._ended_s)

    def end_s(self, life: int) -> float:
        """Return when a life ended; infinite: it has not."""
        return self._ended_s[life] if self.ended(life) else float("inf")

    def since_harm_s(self, t: float) -> float:
        """Return the seconds since the process was last killed or stopped."""
        before = bisect.bisect_right(self.harmed_s, t)
        return t - self.harmed_s[before - 1] if before else float("inf")


def of_kind(events: Events, kind: type[Any]) -> Iterator[Any]:
    """Yield the events of a class."""
    return (event for event in events if isinstance(event, kind))


def name_of(key: str, epoch: int, index: int) -> str:
    """Return a segment in words."""
    return f"segment {index} of epoch {epoch} of {key}"
