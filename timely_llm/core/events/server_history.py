"""The history of one of several servers: its lives, and the steps of its engine."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from timely_llm.core.events.request_history import StepRecord, TimeSpan
from timely_llm.core.events.run_event import RunEvent
from timely_llm.core.events.schema import OpenedEvent, ReadyEvent


@dataclass
class ServerHistory:
    """One server.

    Attributes:
        steps: of its engine, in order.
        outages: start and end of the times in which it was gone; the last end may be infinite.
        newest_s: time of its newest event.
        opened_s: when its last life began.
    """

    steps: list[StepRecord] = field(default_factory=list)
    outages: list[TimeSpan] = field(default_factory=list)
    newest_s: float = -math.inf
    opened_s: float = -math.inf

    @property
    def is_gone(self) -> bool:
        """Whether it has ended, and is not ready again."""
        return bool(self.outages) and math.isinf(self.outages[-1][1])

    @property
    def starts(self) -> bool:
        """Whether it has begun another life, and is not ready yet."""
        return self.is_gone and self.opened_s > self.outages[-1][0]

    def gone(self, at_s: float) -> None:
        """Enter that it has ended."""
        self.outages.append((at_s, math.inf))

    def add(self, event: RunEvent) -> None:
        """Take an event of its log; a second life shows that the first one ended."""
        if isinstance(event, OpenedEvent):
            if math.isfinite(self.newest_s) and not self.is_gone:
                self.gone(self.newest_s)
            self.opened_s = event.t
        elif isinstance(event, ReadyEvent) and self.is_gone:
            self.outages[-1] = self.outages[-1][0], event.t
        self.newest_s = max(self.newest_s, event.t)
