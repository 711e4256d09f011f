"""Edges that run one of several models at a time."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable

from timely_llm.experiments.virtual.sketches.bench import Bench, DecodingSite, SiteCall
from timely_llm.experiments.virtual.sketches.questions import PROMPT_TOKENS
from timely_llm.experiments.virtual.sketches.testbed import (
    NETWORK_TO_EDGE,
    Devices,
    edge_profile,
)
from timely_llm.progressive.choice import expansion_s

TEMPLATE_TOKENS = 40
"""Tokens of the expansion prompt without question and sketch (§IV-B)."""


class ModelEdge:
    """One edge.

    Args:
        name: unique.
        bench: runs it.
        devices: the testbed.
        rows: most rows of a step.
        model: place of its first model among those of the testbed.
        reserved: rows that only openings get; there is at least one for expansions.

    Attributes:
        held: questions with sketches that will come.
    """

    def __init__(
        self, name: str, bench: Bench, devices: Devices, rows: int, model: int = 0,
        reserved: int = 0,
    ) -> None:  # fmt: skip
        self.name = name
        self.held = 0
        self._bench = bench
        self._switch_s = devices.switch_s
        self.sites = [
            DecodingSite(f"{name}/{one}", edge_profile(one), rows, NETWORK_TO_EDGE)
            for one in devices.far.small
        ]
        self.models = devices.far.small
        self.model = model
        self.rows = rows if not reserved else max(rows - reserved, 1)
        self._most = self.rows if reserved else math.inf
        self._ready_s = 0.0
        self._known: set[str] = set()
        self._coming = 0
        self._waiting: deque[SiteCall] = deque()
        self._begun: list[SiteCall] = []

    @property
    def site(self) -> DecodingSite:
        """The edge with the model that it runs."""
        return self.sites[self.model]

    @property
    def idle(self) -> bool:
        """Whether it has nothing to do."""
        return not (self.site.calls or self.held or self._coming or self._waiting)

    @property
    def requests(self) -> int:
        """Calls that it has, with those that wait for a row."""
        return self.site.requests + len(self._waiting)

    def switch(self, model: int, now: float) -> None:
        """Change the model of an idle edge."""
        if model != self.model:
            self.model = model
            self._ready_s = now + self._switch_s

    def prompt_tokens(self, question: str, sketch_tokens: int) -> int:
        """Return the prompt tokens of an expansion; question and sketch count once an edge."""
        if question in self._known:
            return TEMPLATE_TOKENS
        self._known.add(question)
        return TEMPLATE_TOKENS + PROMPT_TOKENS + sketch_tokens

    def call(self, one: SiteCall, now: float) -> None:
        """Ask something of its model; it waits while all rows that are not reserved are taken."""
        self._waiting.append(one)
        self.turn(now)

    def turn(self, now: float) -> None:
        """Begin what waits for a row."""
        if not self._waiting:
            return
        self._begun = [one for one in self._begun if not one.through]
        while self._waiting and len(self._begun) < self._most:
            one = self._waiting.popleft()
            self._begun.append(one)
            self.begin(one, now)

    def begin(self, one: SiteCall, now: float) -> None:
        """Ask something of its model as soon as that is loaded, in a reserved row if need be."""
        if now >= self._ready_s:
            self.site.call(one, now)
            return
        self._coming += 1
        site = self.site

        def begin(at_s: float) -> None:
            self._coming -= 1
            if not one.over:
                site.call(one, at_s)

        self._bench.at(self._ready_s, begin)

    def first_word_s(self, now: float) -> float:
        """Return the predicted seconds to the first word of an opening."""
        if self.site.requests >= self.site.max_rows:
            return math.inf
        return max(self._ready_s - now, 0.0) + expansion_s(self.site, PROMPT_TOKENS, [1.0])

    def seconds_of(self, model: int) -> Callable[[float], float]:
        """Return the seconds of an answer with a model, in one row with nothing beside it."""
        return self.sites[model].row_s
