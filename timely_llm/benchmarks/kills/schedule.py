"""When which process is killed, stopped or drained, and for how long."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

SLOT_S = 20.0
"""Mean time between two kills of one process, seconds."""
REACH = 0.6
"""Share of a slot in which its kill comes; in the rest the process is back."""
SHARES = {"killed": 0.7, "stopped": 0.15, "deactivated": 0.15}
"""Kinds of kills, and how often each is drawn."""
ONLY_KILLED = {"killed": 1.0}
AWAY_S = {"killed": (0.1, 4.0), "stopped": (3.0, 6.0), "deactivated": (1.0, 5.0)}
"""Least and most seconds until a process is started again, continued, or activated."""
DISPATCHER_SHARE = 0.6
"""Share of the run in which the dispatcher is killed: its last life shows what it keeps."""
DISPATCHER, SERVER = "dispatcher", "server"
FACES = (DISPATCHER, SERVER)
"""Names of the process that clients ask: a dispatcher, or one server with a recovery journal."""
JOURNAL_SLOT_S = 15.0
"""Mean time between two kills of a server with a recovery journal, seconds."""


@dataclass(frozen=True)
class Kill:
    """What happens to one process.

    Attributes:
        at_s: when, seconds from the beginning of the run.
        process: name of the process.
        kind: killed (SIGKILL), stopped (SIGSTOP) or deactivated (it drains).
        for_s: seconds until it is started again, continued, or activated.
    """

    at_s: float
    process: str
    kind: str
    for_s: float


@dataclass(frozen=True)
class Kills:
    """What is run.

    Attributes:
        kills: kills of servers, of all kinds.
        dispatcher_kills: kills of the dispatcher, of all kinds.
        robots, people: clients.
        seed: of all random choices.
        hedge: the dispatcher asks two servers for urgent plans.
        journal: there is one server with a recovery journal and no dispatcher, and all kills are
            by SIGKILL.
        only_kills: all kills are by SIGKILL, so that no process is stopped or drained.
    """

    kills: int = 100
    dispatcher_kills: int = 20
    robots: int = 24
    people: int = 8
    seed: int = 0
    hedge: bool = False
    journal: bool = False
    only_kills: bool = False

    @property
    def shares(self) -> Mapping[str, float]:
        """Return the kinds of kills, and how often each is drawn."""
        return ONLY_KILLED if self.journal or self.only_kills else SHARES

    @property
    def face(self) -> str:
        """Return the name of the process that clients ask."""
        return SERVER if self.journal else DISPATCHER

    def duration_s(self, servers: int) -> float:
        """Return the seconds in which processes are killed."""
        if self.journal:
            return JOURNAL_SLOT_S * max(self.kills, 1)
        of_servers = SLOT_S * -(-self.kills // servers)
        return max(of_servers, SLOT_S * self.dispatcher_kills / DISPATCHER_SHARE, SLOT_S)


def schedule(kills: Kills, servers: Sequence[str]) -> list[Kill]:
    """Return all kills in order of time; a process is back before its next kill.

    Each process has a slot of time for each of its kills, which comes at random in the first part
    of the slot. So at least one server is there most of the time, and sometimes none is.
    """
    rng = np.random.default_rng(kills.seed)
    whole_s = kills.duration_s(len(servers))
    if kills.journal:
        return _of_process(SERVER, kills.kills, whole_s, rng, kills.shares)
    made: list[Kill] = []
    for place, name in enumerate(servers):
        count = kills.kills // len(servers) + (place < kills.kills % len(servers))
        made += _of_process(name, count, whole_s, rng, kills.shares)
    of_dispatcher_s = DISPATCHER_SHARE * whole_s
    made += _of_process(DISPATCHER, kills.dispatcher_kills, of_dispatcher_s, rng, kills.shares)
    return sorted(made, key=lambda one: one.at_s)


def _of_process(
    name: str, count: int, whole_s: float, rng: np.random.Generator, shares: Mapping[str, float],
) -> list[Kill]:  # fmt: skip
    slot_s = whole_s / max(count, 1)
    made = []
    for place in range(count):
        kind = str(rng.choice(list(shares), p=list(shares.values())))
        at_s = slot_s * (place + rng.uniform(0.0, REACH))
        made.append(Kill(at_s, name, kind, float(rng.uniform(*AWAY_S[kind]))))
    return made
