"""FastServe's skip-join multi-level feedback queue (arXiv 2305.05920, §4.1)."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass

from timely_llm.core.errors import ConfigurationError
from timely_llm.core.generation import Generation
from timely_llm.policies.contract import Capacity, StepPlan
from timely_llm.policies.packing import pack
from timely_llm.policies.step_time import StepTime

_RATIO = 2.0


@dataclass(slots=True)
class _Job:
    """Where a request stands.

    Attributes:
        level: its queue, 0 the first.
        entered: when it came into that queue, as a count.
        ran_s: seconds of steps that it took part in, in that queue.
        last_s: when it last took part in a step, or came.
    """

    level: int
    entered: int
    ran_s: float
    last_s: float


@dataclass(eq=False)
class FastServe:
    """Those who have run least come first, preempted after each token.

    A request joins the first queue whose quantum its prompt's step does not exceed (skip-join);
    each queue's quantum is twice that of the one before. Who has used up the quantum goes to the
    end of the next queue; who has waited too long goes to the first one, so nobody starves. The
    batch takes the queues in order. Where it takes everyone, as in paper 000, all have the same
    rate, and this is continuous batching.

    Attributes:
        rows: most generations in a step; None: what the engine takes.
        quantum_s: of the first queue, seconds (0.01 in its released code).
        starvation_s: who was in no step for so long is promoted, seconds (3 in its released code).
    """

    rows: int | None = None
    quantum_s: float = 0.01
    starvation_s: float = 3.0
    whole_plans = False

    def __post_init__(self) -> None:
        for name, value in (("quantum_s", self.quantum_s), ("starvation_s", self.starvation_s)):
            if not 0.0 < value < math.inf:
                raise ConfigurationError(
                    f"fastserve: {name} must be above 0 and finite, not {value:g}"
                )
        self._jobs: dict[str, _Job] = {}
        self._entries = 0
        self._batch: frozenset[str] = frozenset()
        self._began_s = 0.0

    def plan(
        self,
        now: float,
        generations: Collection[Generation],
        step_time: StepTime,
        capacity: Capacity,
    ) -> StepPlan:
        """Return who has run least, as many as the engine can take."""
        step_s = max(now - self._began_s, 0.0)
        known, self._jobs = self._jobs, {}
        for generation in generations:
            key = generation.key
            job = known.get(key)
            if job is None:
                job = _Job(self._join_level(generation, step_time), self._next(), 0.0, now)
            elif key in self._batch:
                self._charge(job, step_s, now)
            elif now - job.last_s >= self.starvation_s:
                job.level, job.entered, job.ran_s, job.last_s = 0, self._next(), 0.0, now
            self._jobs[key] = job
        order = sorted(generations, key=self._place)
        plan = pack(order, generations, capacity, self.rows)
        self._batch, self._began_s = plan.keys, now
        return plan

    def _join_level(self, generation: Generation, step_time: StepTime) -> int:
        """Return the first level whose quantum is enough for the first step."""
        prompt = generation.to_compute
        first_s = step_time.predict_s(0, prompt) if prompt > 1 else step_time.predict_s(1)
        return max(math.ceil(math.log(first_s / self.quantum_s, _RATIO) - 1e-9), 0)

    def _charge(self, job: _Job, step_s: float, now: float) -> None:
        """Count a step that it took part in; who has used up its quantum goes down."""
        job.last_s = now
        job.ran_s += step_s
        if job.ran_s > self.quantum_s * _RATIO**job.level:
            job.level, job.entered, job.ran_s = job.level + 1, self._next(), 0.0

    def _place(self, generation: Generation) -> tuple[int, int]:
        job = self._jobs[generation.key]
        return job.level, job.entered

    def _next(self) -> int:
        self._entries += 1
        return self._entries
