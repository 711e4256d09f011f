"""Edges that run one of several models at a time."""

from __future__ import annotations

from collections.abc import Callable

from timely_llm.experiments.virtual.sketches.bench import Bench, DecodingSite, SiteCall
from timely_llm.experiments.virtual.sketches.questions import PROMPT_TOKENS
from timely_llm.experiments.virtual.sketches.testbed import (
    NETWORK_TO_EDGE,
    Devices,
    edge_profile,
)

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

    Attributes:
        held: questions with sketches that will come.
    """

    def __init__(
        self, name: str, bench: Bench, devices: Devices, rows: int, model: int = 0
    ) -> None:
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
        self._ready_s = 0.0
        self._known: set[str] = set()
        self._coming = 0

    @property
    def site(self) -> DecodingSite:
        """The edge with the model that it runs."""
        return self.sites[self.model]

    @property
    def idle(self) -> bool:
        """Whether it has nothing to do."""
        return not (self.site.calls or self.held or self._coming)

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
        """Ask something of its model as soon as that is loaded."""
        if now >= self._ready_s:
            self.site.call(one, now)
            return
        self._coming += 1
        site = self.site

        def begin(at_s: float) -> None:
            self._coming -= 1
            site.call(one, at_s)

        self._bench.at(self._ready_s, begin)

    def seconds_of(self, model: int) -> Callable[[float], float]:
        """Return the seconds of an answer with a model, in one row with nothing beside it."""
        return self.sites[model].row_s
