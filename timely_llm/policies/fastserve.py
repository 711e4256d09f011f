"""FastServe's skip-join multi-level feedback queue (Wu et al. 2023, §4.1)."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass

from timely_llm.core.errors import ConfigurationError
from timely_llm.core.generation import Generation
from timely_llm.core.reason import Cause, Reason
from timely_llm.core.step import Capacity, StepPlan
from timely_llm.policies.contract import Explains
from timely_llm.policies.packing import pack
from timely_llm.policies.step_time import StepTime

_RATIO = 2.0


@dataclass(slots=True)
class _QueueEntry:
    """Place of a request in the queues.

    Attributes:
        level: its queue; 0 is the first.
        entered: order of entry into that queue, a count.
        ran_s: seconds of its steps since then.
        last_s: time of its last step, or of its arrival.
    """

    level: int
    entered: int
    ran_s: float
    last_s: float


@dataclass(eq=False)
class FastServe(Explains):
    """Requests that have run least go first; each token preempts.

    A request joins the first queue with a quantum of at least its prompt's step (skip-join). The
    quantum of each queue is twice that of the queue before. A request that has used up its quantum
    goes to the end of the next queue. A request that has waited too long goes to the first queue,
    so that none starves. The batch takes the queues in order. Where it takes all requests, as in
    Zhou et al. 2025, all have the same rate, and this is continuous batching.

    Attributes:
        rows: most generations in a step; None: the limit of the engine.
        quantum_s: quantum of the first queue, seconds (0.01 in the released code).
        starvation_s: waiting time after which a request is promoted, seconds (3 in the released
            code).
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
        self._jobs: dict[str, _QueueEntry] = {}
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
        """Return the requests that have run least, as many as the engine can take."""
        step_s = max(now - self._began_s, 0.0)
        known, self._jobs = self._jobs, {}
        for generation in generations:
            key = generation.key
            job = known.get(key)
            if job is None:
                job = _QueueEntry(self._join_level(generation, step_time), self._next(), 0.0, now)
            elif key in self._batch:
                self._charge(job, step_s, now)
            elif now - job.last_s >= self.starvation_s:
                job.level, job.entered, job.ran_s, job.last_s = 0, self._next(), 0.0, now
            self._jobs[key] = job
        order = sorted(generations, key=self._place)
        why: dict[str, Reason] | None = None
        if self.explain:
            why = {g.key: Reason(Cause.QUEUE_LEVEL, self._jobs[g.key].level) for g in order}
        plan = pack(order, generations, capacity, self.rows, why)
        self._batch, self._began_s = plan.keys, now
        return plan

    def _join_level(self, generation: Generation, step_time: StepTime) -> int:
        """Return the first level with a quantum of at least the first step."""
        prompt = generation.to_compute
        first_s = step_time.predict_s(0, prompt) if prompt > 1 else step_time.predict_s(1)
        return max(math.ceil(math.log(first_s / self.quantum_s, _RATIO) - 1e-9), 0)

    def _charge(self, job: _QueueEntry, step_s: float, now: float) -> None:
        """Count a step of a request, and demote it once its quantum is used up."""
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
