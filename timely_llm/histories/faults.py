"""Faults of a history: a list drawn from its seed."""

from __future__ import annotations

import random
from collections.abc import Collection
from dataclasses import dataclass

KINDS = {
    "report lost": "the next report of a robot does not arrive",
    "report late": "the next report of a robot arrives seconds later",
    "report doubled": "the next report of a robot arrives twice",
    "report reordered": "the next report of a robot arrives after the one that follows it",
    "unknown report": "a report names a request, an epoch or a segment that does not exist",
    "engine raises": "the next step of an engine fails",
    "engine hangs": "the next step of an engine takes seconds, up to more than step_timeout_s",
    "engine loses sequence": "an engine does not know a sequence any more",
    "engine ends": "the next step of an engine raises EngineLost",
    "server dies": "a server's process is killed; a new one comes seconds later",
    "server dies at record": "a server is killed before or after its next record in the journal",
    "record torn": "a server is killed in the middle of its next record in the journal",
    "disk full": "the next record of a journal does not fit; its server goes on without a journal",
    "disk slow": "the next record of a journal takes seconds",
    "partition": "no message passes between the dispatcher and a server for seconds",
    "client apart": "no message passes between a robot or a person and its server for seconds",
    "robot dies": "a robot is silent for ever, and does nothing any more; another one comes",
    "robot restarts": "a robot forgets its plan, and asks for another one under its name",
    "dispatcher dies": "the dispatcher's process is killed; a new one comes seconds later",
    "other release": "a server of another release takes the place of one for seconds",
    "memory exhausted": "an engine has almost no free KV for seconds",
    "person dies": "a person is silent for ever, and takes nothing any more; another one comes",
    "clock jump": "the simulator's clock, which is robots' time, leaps ahead or back",
    "cancel": "a client cancels its request",
    "duplicate id": "a client sends the id of a request that is being served",
    "refused request": "a client asks for a skill set that no server has",
}
"""Each kind of fault, and what it does."""

OF_SERVERS = frozenset(
    {
        "engine raises", "engine hangs", "engine loses sequence", "engine ends", "server dies",
        "server dies at record", "record torn", "disk full", "disk slow", "partition",
        "dispatcher dies", "other release",
    }
)  # fmt: skip
"""Kinds that hit servers or their network."""

OF_JOURNALS = frozenset({"server dies at record", "record torn", "disk full", "disk slow"})
"""Kinds that hit the next record of a recovery journal."""

LASTS_S = 120.0
"""Time after which a history may end, seconds."""

REST_S = 5.0
"""No fault begins in this last part of a history, seconds."""

EACH_S = 2.5
"""A history has at most one fault in this time, on the mean, seconds."""

CALM_SHARE = 0.1
"""Share of the seeds that have no fault of servers or their network."""


def faults_s(lasts_s: float) -> float:
    """Return the time in which the faults of a history begin, and clients ask, seconds."""
    return max(lasts_s - REST_S, REST_S)


@dataclass(frozen=True)
class InjectedFault:
    """One fault.

    Attributes:
        number: its place in the seed's list, from 0: the same whatever other faults are left out.
        kind: one of `KINDS`.
        at_s: when it begins; one of a message or a step waits for the next one.
        place: the server, robot or person that it hits, as a number that is taken modulo theirs.
        size: 0 to 1, such as how long it lasts.
    """

    number: int
    kind: str
    at_s: float
    place: int
    size: float


def draw(
    seed: int, kinds: Collection[str] = tuple(KINDS), lasts_s: float = LASTS_S
) -> list[InjectedFault]:
    """Return the faults of a seed, of the given kinds only; each keeps its number.

    Args:
        seed: of the history.
        kinds: kinds of faults.
        lasts_s: time after which the history may end, seconds.
    """
    source = random.Random(f"faults of {seed}")
    calm = source.random() < CALM_SHARE
    names = [kind for kind in KINDS if not (calm and kind in OF_SERVERS)]
    begin_s = faults_s(lasts_s)
    drawn = [
        InjectedFault(
            number, source.choice(names), source.uniform(0.0, begin_s), source.randrange(1 << 16),
            source.random(),
        )
        for number in range(source.randint(1, most_faults(lasts_s)))
    ]  # fmt: skip
    return [fault for fault in drawn if fault.kind in kinds]


def most_faults(lasts_s: float) -> int:
    """Return the largest number of faults of a history."""
    return int(faults_s(lasts_s) / EACH_S)
