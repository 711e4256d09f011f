"""Rules that count requests: round robin, least outstanding, two random choices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from timely_llm.dispatch.contract import Assignment, ServerView, Waiting


@dataclass(eq=False)
class RoundRobin:
    """Each server in turn, by name, among those with the skill set."""

    gathers = False
    _last: str = field(default="", init=False)

    def assign(
        self, now: float, waiting: Sequence[Waiting], servers: Sequence[ServerView]
    ) -> Sequence[Assignment]:
        """Return the next server for each request."""
        made = []
        for one in waiting:
            able = sorted(server.name for server in servers if one.can_go_to(server))
            if able:
                self._last = next((name for name in able if name > self._last), able[0])
                made.append(Assignment(one.key, self._last))
        return made


@dataclass(eq=False)
class LeastOutstanding:
    """The server with the fewest requests that have not ended; the first by name of several."""

    gathers = False

    def assign(
        self, now: float, waiting: Sequence[Waiting], servers: Sequence[ServerView]
    ) -> Sequence[Assignment]:
        """Return the least loaded server for each request."""
        counts = {server.name: server.requests for server in servers}
        made = []
        for one in waiting:
            able = [server.name for server in servers if one.can_go_to(server)]
            if able:
                best = min(able, key=lambda name: (counts[name], name))
                counts[best] += 1
                made.append(Assignment(one.key, best))
        return made


@dataclass(eq=False)
class TwoChoices:
    """The one of two random servers with fewer requests (Mitzenmacher 2001).

    Attributes:
        seed: of the choices.
    """

    seed: int = 0
    gathers = False

    def __post_init__(self) -> None:
        self._rng = np.random.default_rng(self.seed)

    def assign(
        self, now: float, waiting: Sequence[Waiting], servers: Sequence[ServerView]
    ) -> Sequence[Assignment]:
        """Return the less loaded of two servers for each request."""
        counts = {server.name: server.requests for server in servers}
        made = []
        for one in waiting:
            able = sorted(server.name for server in servers if one.can_go_to(server))
            if able:
                drawn = self._rng.choice(len(able), min(2, len(able)), replace=False)
                best = min((able[place] for place in drawn), key=lambda name: counts[name])
                counts[best] += 1
                made.append(Assignment(one.key, best))
        return made
