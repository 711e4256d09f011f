"""Policies that serve first what was served least: requests, or their agents."""

from __future__ import annotations

import math
from collections import defaultdict, deque
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from operator import attrgetter

from timely_llm.core.errors import ConfigurationError
from timely_llm.core.generation import Generation, State
from timely_llm.core.reason import Cause, Reason
from timely_llm.core.step import Capacity, StepPlan
from timely_llm.policies.contract import Explains
from timely_llm.policies.packing import pack
from timely_llm.policies.step_time import StepTime

_RATIO = 2.0
"""Of the quanta of two queues that follow each other."""


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
    """Requests that have run least go first; each token preempts (Wu et al. 2023, §4.1).

    This is FastServe's skip-join multi-level feedback queue.

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
        first_s = step_time.first_s(0, prompt) if prompt > 1 else step_time.first_s(1)
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


_MOST_ABSENT = 256
"""Absent agents with a counter."""


@dataclass(eq=False)
class VirtualTokens(Explains):
    """The next request is that of the agent with the fewest tokens served so far.

    This is the Virtual Token Counter: fair shares of the engine for agents (Sheng et al. 2024).

    Each agent has a counter of the tokens that it was served, weighted: those of a prompt when its
    request joins the batch, and each generated one. A free row goes to the waiting request of the
    agent with the lowest counter, by arrival. A request in the batch stays to its end. An agent
    that begins to wait is lifted to the lowest counter of the others that wait, so that it gets
    nothing for the time in which it asked for nothing. Where the batch takes all requests, this is
    continuous batching.

    A plan that waits for a skill's value leaves the batch, and waits like a new request after it.
    Of a prompt, the tokens that are left to compute count. Agents all weigh the same. Where memory
    lacks, a request that does not fit is passed over. The 256 agents that were served last keep
    their counters while they ask for nothing.

    Attributes:
        rows: most generations in a step; None: the limit of the engine.
        input_weight: weight of a token of a prompt (1 in the paper).
        output_weight: weight of a generated token (2 in the paper).
    """

    rows: int | None = None
    input_weight: float = 1.0
    output_weight: float = 2.0
    whole_plans = False

    def __post_init__(self) -> None:
        self._served: dict[str, float] = {}  # by agent, the one served last at the end
        self._batch: frozenset[str] = frozenset()
        self._waiting: frozenset[str] = frozenset()  # agents

    def plan(
        self,
        now: float,
        generations: Collection[Generation],
        step_time: StepTime,
        capacity: Capacity,
    ) -> StepPlan:
        """Return the batch, and the requests that join it."""
        by_arrival = sorted(generations, key=attrgetter("arrival_s"))
        batch: list[Generation] = []
        waiting: list[Generation] = []
        for generation in by_arrival:
            # One that was absent for a step in flight is still running.
            stays = generation.key in self._batch or generation.state is State.RUNNING
            (batch if stays else waiting).append(generation)
        self._lift(waiting)
        most = capacity.max_rows if self.rows is None else min(self.rows, capacity.max_rows)
        joining = self._fewest_first(waiting, most - len(batch))
        order = [*batch, *joining]
        why: dict[str, Reason] | None = None
        if self.explain:
            why = dict.fromkeys((g.key for g in waiting), Reason(Cause.ROWS, most))
            why |= {g.key: Reason(Cause.RUNS) for g in batch}
            why |= {
                g.key: Reason(Cause.SERVED_LEAST, self._served[g.request.agent]) for g in joining
            }
        plan = pack(order, generations, capacity, self.rows, why)
        self._charge(batch, joining, dict(plan.entries))
        self._batch = frozenset(g.key for g in batch) | plan.keys
        self._waiting = frozenset(g.request.agent for g in waiting if g.key not in plan.keys)
        self._forget({g.request.agent for g in by_arrival})
        return plan

    def _lift(self, waiting: Iterable[Generation]) -> None:
        """Lift agents that begin to wait to the lowest counter of the agents that wait already."""
        asking = dict.fromkeys(g.request.agent for g in waiting)
        before = [self._served[agent] for agent in asking if agent in self._waiting]
        floor = min(before, default=math.inf)
        for agent in asking:
            if agent not in self._waiting:
                own = self._served.get(agent, 0.0)
                self._served[agent] = own if floor == math.inf else max(own, floor)
                floor = min(floor, self._served[agent])

    def _fewest_first(self, waiting: Iterable[Generation], most: int) -> list[Generation]:
        """Return the next requests in the order in which they join, with their prompts counted."""
        lines: dict[str, deque[Generation]] = defaultdict(deque)
        for generation in waiting:
            lines[generation.request.agent].append(generation)
        served = {agent: self._served[agent] for agent in lines}
        found: list[Generation] = []
        while lines and len(found) < most:
            agent = min(lines, key=served.__getitem__)
            generation = lines[agent].popleft()
            found.append(generation)
            served[agent] += self.input_weight * generation.to_compute
            if not lines[agent]:
                del lines[agent]
        return found

    def _charge(
        self,
        batch: Iterable[Generation],
        joining: Iterable[Generation],
        entries: Mapping[str, int],
    ) -> None:
        """Count the prompts that join and the tokens that the step generates."""
        for generations, input_weight in ((batch, 0.0), (joining, self.input_weight)):
            for generation in generations:
                tokens = entries.get(generation.key)
                if tokens is None:
                    continue
                cost = input_weight * generation.to_compute
                if tokens == generation.to_compute:
                    cost += self.output_weight
                agent = generation.request.agent
                self._served[agent] = self._served.pop(agent, 0.0) + cost

    def _forget(self, present: Collection[str]) -> None:
        """Keep the counters of agents with requests and of the last absent ones."""
        absent = [agent for agent in self._served if agent not in present]
        for agent in absent[: max(len(absent) - _MOST_ABSENT, 0)]:
            del self._served[agent]
