"""What a step of the policy `deadline` is planned from."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from typing import NamedTuple

from timely_llm.core.generation import Generation
from timely_llm.core.reason import Cause, Reason
from timely_llm.core.step import Capacity
from timely_llm.policies.step_time import StepTime

AHEAD = 0.2
"""Largest fraction by which other work may lengthen a step of plans that are late."""


class Moment(NamedTuple):
    """What a step is planned from.

    Attributes:
        now: the time, seconds.
        generations: the pool.
        step_time: predicted seconds of steps.
        one_s: predicted seconds of a step of one row.
        capacity: limits of the engine.
        why: takes the reasons by key; None: no reasons.
        evicts: a later segment may evict others.
    """

    now: float
    generations: Collection[Generation]
    step_time: StepTime
    one_s: float
    capacity: Capacity
    why: dict[str, Reason] | None
    evicts: bool

    @property
    def begin_s(self) -> float:
        """When the steps of a sequence that joins now begin, if each of them takes as long.

        In a pipeline the first token takes longer than each further one.
        """
        return self.now + self.step_time.delay_s

    def explain(
        self, some: Iterable[Generation], cause: Cause, number: float | None = math.nan
    ) -> None:
        """Give some generations a reason, if reasons are asked for.

        Args:
            some: the generations.
            cause: the reason's.
            number: the reason's; not a number: the seconds until the generation is due.
        """
        if self.why is None:
            return
        for one in some:
            due = number is not None and math.isnan(number)
            self.why[one.key] = Reason(cause, one.due_s - self.now if due else number)
