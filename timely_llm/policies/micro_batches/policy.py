"""Micro-batches around any policy: the policy plans a cycle, each step takes a part of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from enum import StrEnum
from itertools import accumulate
from typing import NamedTuple

from timely_llm.core.generation import Generation
from timely_llm.core.reason import Cause, Reason
from timely_llm.core.step import Capacity, StepPlan
from timely_llm.policies.contract import Policy, ask_for_reasons
from timely_llm.policies.micro_batches.chunk import ChunkTime, DueTimes, soonest_chunk
from timely_llm.policies.micro_batches.flow_shop import (
    Affine,
    FlowShop,
    shortest_cycle,
    smallest_gap,
)
from timely_llm.policies.micro_batches.memory import MemoryPromises, Price
from timely_llm.policies.micro_batches.token_budget import (
    PrefillQueue,
    Throttle,
    TokenBudget,
    fixed_chunk,
)
from timely_llm.policies.pipeline_time import PipelineTime
from timely_llm.policies.step_time import StepTime


class Mode(StrEnum):
    """How the work of a pipeline is divided into micro-batches.

    `AUTO`: `CYCLE`, but `OFF` for a policy that bounds its own batches (`bounds_batches`): a cycle
    would have to keep within the bound of one batch.
    `OFF`: each step takes all that it can, as in stock engines. `BUDGET_ONLY`: as many
    micro-batches as stages, with budgets by Algorithm 1 of Ahn et al. 2025. `PAPER`: their number
    by Algorithm 2 as well. `THROTTLE`: token throttling (Guo et al. 2025). `FIXED_CHUNK`: as many
    micro-batches as stages, each with all tokens that a step may have, decoding sequences first
    (Agrawal et al. 2024). `CYCLE`, this package's: the number with the shortest cycle, prompts in
    the chunks that pass soonest, and only where the KV suffices for all that has begun, or where an
    eviction costs less than it gains. `CYCLE_KEPT`: as `CYCLE`, but nothing
    is evicted for a prompt. `CYCLE_DUE`: as `CYCLE`, with chunks no longer than the tightest due
    time affords. `CYCLE_OWN`: as `CYCLE`, with a micro-batch without a prompt in each cycle for
    what a chunk would make late.
    """

    AUTO = "auto"
    OFF = "off"
    BUDGET_ONLY = "budget-only"
    PAPER = "paper"
    THROTTLE = "throttle"
    FIXED_CHUNK = "fixed-chunk"
    CYCLE = "cycle"
    CYCLE_KEPT = "cycle-kept"
    CYCLE_DUE = "cycle-due"
    CYCLE_OWN = "cycle-own"


_OF_CYCLES = (Mode.CYCLE, Mode.CYCLE_KEPT, Mode.CYCLE_DUE, Mode.CYCLE_OWN)
_AS_MANY_AS_STAGES = (Mode.BUDGET_ONLY, Mode.THROTTLE, Mode.FIXED_CHUNK)


class Work(NamedTuple):
    """What a cycle computes.

    Attributes:
        decoding: sequences that decode, those in flight included.
        context: tokens that they attend to.
        prompts: prompt tokens that the policy wants computed.
        waiting: prompt tokens of all sequences.
        waiting_prompts: number of these sequences.
        kv_free: share of the KV that is free.
    """

    decoding: int
    context: int
    prompts: int
    waiting: int
    waiting_prompts: int
    kv_free: float


class MicroBatches:
    """Cuts the steps of a policy into the micro-batches of a pipeline.

    The policy plans a *cycle*: it sees all sequences as if no step were in flight, and the times of
    cycles. A micro-batch takes the entries that wait for no step in flight, in the policy's order,
    within a token budget. A policy that counts its own steps (`counts_steps`) plans the next cycle
    when all entries of the last one have been in a step; any other plans anew before each step.

    An engine of one stage gets the policy's own plans.

    Args:
        policy: plans the cycles.
        mode: the rule of the budgets; neither `AUTO` nor `OFF`.

    Attributes:
        whole_plans: as the policy's.
    """

    sees_in_flight = True

    def __init__(self, policy: Policy, mode: Mode = Mode.CYCLE) -> None:
        self.policy = policy
        self.mode = mode
        self.whole_plans = policy.whole_plans
        self._counts_steps = getattr(policy, "counts_steps", False)
        self._queue = PrefillQueue()
        self._throttle = Throttle(released=True)
        self._promises = MemoryPromises()
        self._due = DueTimes(self._promises.to_say)
        self._shared = 0  # micro-batches since the last one without a prompt
        self._cycle: StepPlan = StepPlan()
        self._taken: Counter[str] = Counter()
        self._planned: list[tuple[Generation, int, int]] = []  # of the last step, and its tokens
        self._explain = False

    @property
    def explain(self) -> bool:
        """Whether each plan carries reasons."""
        return self._explain

    @explain.setter
    def explain(self, on: bool) -> None:
        self._explain = on and ask_for_reasons(self.policy)

    def plan(
        self,
        now: float,
        generations: Collection[Generation],
        step_time: StepTime,
        capacity: Capacity,
    ) -> StepPlan:
        """Return the next micro-batch; an empty plan while enough of them are in flight."""
        if capacity.stages < 2:
            able = [g for g in generations if g.to_compute > 0]
            return self.policy.plan(now, able, step_time, capacity)
        pool = generations
        if self.mode in _OF_CYCLES:
            price = None if self.mode is Mode.CYCLE_KEPT else _price(step_time, pool)
            generations = self._promises.admitted(pool, capacity, price)
        flying = [g for g in generations if g.to_compute == 0]
        with _as_collected(flying):
            cycle = self._plan_cycle(now, generations, step_time, capacity)
            work = _work(cycle, generations, capacity)
        shop = _shop(step_time, work)
        number = self._number(work, shop, capacity)
        if isinstance(step_time, PipelineTime):
            step_time.micro_batches = number
        # A column says nothing of the next ones, which other stages can begin.
        most = max(number, capacity.stages) if self._counts_steps else number
        if capacity.steps_in_flight >= most:
            return StepPlan()
        budget = self._budget(work, number, shop, capacity)
        if self.mode in _WITH_DUE_TIMES and isinstance(step_time, PipelineTime):
            parts = work.decoding, work.context
            chunks = ChunkTime(step_time, number, *(-(-part // number) for part in parts))
            budget = self._in_time(budget, now, cycle, generations, chunks)
        out = {g.key for g in flying}
        left = {g.key: g for g in generations if g.key not in out}
        entries = _cut(cycle, left, budget, capacity)
        step = _within_memory(entries, cycle, left, capacity)
        if cycle.entries and not (step.entries or capacity.steps_in_flight):
            # Neither memory nor a budget comes from a step in flight: the policy's own step.
            step = cycle = self.policy.plan(now, generations, step_time, capacity)
        elif self._counts_steps:
            self._planned = [(left[key], left[key].context_tokens, n) for key, n in step.entries]
        return self._explained(step, cycle, pool, number)

    def _plan_cycle(
        self,
        now: float,
        generations: Collection[Generation],
        step_time: StepTime,
        capacity: Capacity,
    ) -> StepPlan:
        """Return the policy's plan of a cycle; what is left of it if the policy counts steps."""
        if self._counts_steps:
            for generation, context_tokens, tokens in self._planned:
                if generation.context_tokens != context_tokens:  # else the loop submitted no step
                    self._taken[generation.key] += tokens
            self._planned = []
            present = {g.key for g in generations}
            left = tuple(
                (key, tokens - self._taken[key])
                for key, tokens in self._cycle.entries
                if key in present and tokens > self._taken[key]
            )
            if left:
                return replace(self._cycle, entries=left)
        whole = replace(capacity, max_rows=capacity.max_rows * capacity.micro_batches)
        if self.mode is Mode.FIXED_CHUNK:
            whole = replace(whole, max_step_tokens=capacity.max_step_tokens * capacity.stages)
        cycle = self.policy.plan(now, generations, step_time, whole)
        if self.mode in _OF_CYCLES:
            cycle = self._promises.kept(cycle)
        self._cycle, self._taken = cycle, Counter()
        return cycle

    def _number(self, work: Work, shop: FlowShop | None, capacity: Capacity) -> int:
        """Return how many micro-batches a cycle has."""
        stages, most = capacity.stages, capacity.micro_batches
        if shop is None or self.mode in _AS_MANY_AS_STAGES:
            return stages
        tokens = work.decoding + work.prompts
        if self.mode in _OF_CYCLES:
            return shortest_cycle(shop.rounded(), tokens, most)
        return smallest_gap(
            stages, most, tokens, _mean(shop.stages).seconds, _mean(shop.links).seconds
        )

    def _budget(
        self, work: Work, number: int, shop: FlowShop | None, capacity: Capacity
    ) -> TokenBudget:
        """Return the budget of the next micro-batch."""
        if self.mode is Mode.THROTTLE:
            return self._throttle.budget(
                work.waiting, work.waiting_prompts, work.kv_free, work.decoding, capacity.stages
            )
        decode = -(-work.decoding // number)
        if self.mode is Mode.FIXED_CHUNK:
            return fixed_chunk(capacity.max_step_tokens, decode)
        if self.mode in _OF_CYCLES:
            prefill = -(-work.prompts // number)
            if work.prompts and shop is not None:
                prefill = soonest_chunk(shop, work.prompts)
            return TokenBudget(decode + prefill, decode + prefill, decode)
        new = max(work.prompts - sum(self._queue.budgets), 0)
        budget, self._queue = self._queue.take(number, work.decoding, new)
        # The paper limits the sum alone.
        return budget._replace(prefill=budget.tokens, decode=budget.tokens)

    def _in_time(
        self,
        budget: TokenBudget,
        now: float,
        cycle: StepPlan,
        generations: Collection[Generation],
        chunks: ChunkTime,
    ) -> TokenBudget:
        """Return a budget with no more prompt tokens than due times afford."""
        by_key = {g.key: g for g in generations}
        planned = [by_key[key] for key, _ in cycle.entries]
        self._due.watch(planned)
        most = budget.tokens - budget.decode
        if not most:
            return budget
        limits_s = {g.key: self._due.limit_s(now, g) for g in planned if g.to_compute <= 1}
        if self.mode is Mode.CYCLE_DUE:
            prompts = [g for g in planned if g.to_compute > 1]
            ends = accumulate(g.to_compute for g in prompts)
            left = [(end, g.due_s - now) for end, g in zip(ends, prompts, strict=True)]
            tokens = budget.decode + chunks.longest_chunk(most, limits_s.values(), left)
            return budget._replace(tokens=tokens, prefill=tokens)
        apart_s, shared_s = chunks.apart_s(most), chunks.cycle_s(most)
        self._shared += 1
        if self._shared >= chunks.micro_batches and any(
            apart_s <= limit_s < shared_s and by_key[key].to_compute
            for key, limit_s in limits_s.items()
        ):
            self._shared = 0
            return budget._replace(prefill=0)
        return budget

    def _explained(
        self, step: StepPlan, cycle: StepPlan, pool: Collection[Generation], number: int
    ) -> StepPlan:
        """Return a step with the reasons of the cycle, and of each that waits for its turn."""
        if not self._explain:
            return step
        reasons, joined, missing = dict(cycle.reasons), step.keys, self._promises.missing
        turn = Reason(Cause.MICRO_BATCH, number)
        said: list[tuple[str, Reason]] = []
        for generation in pool:
            key = generation.key
            reason = reasons.get(key, turn)
            if key in missing:
                reason = Reason(Cause.MEMORY, missing[key])
            elif reason.cause.joined and key not in joined:
                reason = turn
            said.append((key, reason))
        return replace(step, reasons=tuple(said))


@contextmanager
def _as_collected(flying: Sequence[Generation]) -> Iterator[None]:
    """Let sequences of steps in flight look as if they could decode their next token."""
    for generation in flying:
        generation.to_compute = 1
    try:
        yield
    finally:
        for generation in flying:
            generation.to_compute = 0


def _work(cycle: StepPlan, generations: Collection[Generation], capacity: Capacity) -> Work:
    """Return what a cycle computes."""
    entries = dict(cycle.entries)
    decoding = context = prompts = waiting = waiting_prompts = held = 0
    for generation in generations:
        held += generation.kv_tokens
        if generation.to_compute > 1:
            waiting += generation.to_compute
            waiting_prompts += 1
        tokens = entries.get(generation.key)
        if tokens is None:
            continue
        if generation.to_compute == 1:
            decoding += 1
            context += generation.context_tokens
        else:
            prompts += tokens
    kv_free = capacity.free_tokens / max(capacity.free_tokens + held, 1)
    return Work(decoding, context, prompts, waiting, waiting_prompts, kv_free)


def _shop(step_time: StepTime, work: Work) -> FlowShop | None:
    """Return the pipeline for steps with the mix of a cycle's work; None: no work, or no times."""
    tokens = work.decoding + work.prompts
    if not (tokens and isinstance(step_time, PipelineTime)):
        return None

    def affine(coefficients: tuple[float, float, float, float]) -> Affine:
        base, row, prefill, context = coefficients
        each = (row * work.decoding + prefill * work.prompts + context * work.context) / tokens
        return Affine(base, each)

    return FlowShop(
        tuple(affine(stage.coefficients) for stage in step_time.stages),
        tuple(Affine(link.coefficients[0], link.coefficients[2]) for link in step_time.links),
        max(step_time.blocking) >= _BLOCKS,
        step_time.overhead_s,
    )


_BLOCKS = 0.5
_WITH_DUE_TIMES = (Mode.CYCLE_DUE, Mode.CYCLE_OWN)


def _price(step_time: StepTime, generations: Collection[Generation]) -> Price | None:
    """Return what more sequences gain and what an eviction costs; None: it is not known."""
    if not isinstance(step_time, PipelineTime):
        return None
    begun = [g for g in generations if g.kv_tokens > 0]
    cycle_s = step_time.predict_s(len(begun), 0, sum(g.context_tokens for g in begun))
    few_s, many_s = (step_time.occupancy_s(0, tokens) for tokens in _TOKENS)
    token_s = (many_s - few_s) / (_TOKENS[1] - _TOKENS[0])
    return Price(max(cycle_s - len(begun) * token_s, 0.0), token_s)


_TOKENS = 256, 512
"""Tokens of two steps by which the seconds of one more are found."""


def _mean(costs: Sequence[Affine]) -> Affine:
    """Return the mean of stages or links."""
    return Affine(
        sum(cost.base_s for cost in costs) / len(costs),
        sum(cost.token_s for cost in costs) / len(costs),
    )


def _cut(
    cycle: StepPlan, left: dict[str, Generation], budget: TokenBudget, capacity: Capacity
) -> list[tuple[str, int]]:
    """Return the entries of a micro-batch: decoding sequences first, then prompts."""
    entries: list[tuple[str, int]] = []
    tokens = min(budget.tokens, capacity.max_step_tokens)
    decode, prefill = min(budget.decode, tokens, capacity.max_rows), budget.prefill
    prompts = capacity.max_rows if budget.prompts is None else budget.prompts
    for key, _ in cycle.entries:
        if len(entries) == decode:
            break
        if key in left and left[key].to_compute == 1:
            entries.append((key, 1))
    rows = capacity.max_rows - len(entries)
    prefill = min(prefill, tokens - len(entries))
    for key, wanted in cycle.entries:
        if not (prompts and rows and prefill > 0):
            break
        if key in left and left[key].to_compute > 1:
            chunk = min(wanted, prefill)
            entries.append((key, chunk))
            prefill -= chunk
            prompts -= 1
            rows -= 1
    return entries


def _within_memory(
    entries: list[tuple[str, int]],
    cycle: StepPlan,
    left: dict[str, Generation],
    capacity: Capacity,
) -> StepPlan:
    """Return a step of the first entries for which there is memory now.

    Sequences of steps in flight cannot be evicted, though the policy may have planned so.
    """
    needed = sum(tokens for _, tokens in entries)
    if needed <= capacity.free_tokens:
        return StepPlan(tuple(entries), wake_s=cycle.wake_s)
    keys = {key for key, _ in entries}
    evictable = tuple(key for key in cycle.evictable if key not in keys)
    room = capacity.free_tokens + sum(left[key].kv_tokens for key in evictable if key in left)
    while entries and needed > room:
        needed -= entries.pop()[1]
    return StepPlan(tuple(entries), tuple(k for k in evictable if k in left), cycle.wake_s)


def in_micro_batches(policy: Policy, mode: Mode = Mode.AUTO) -> Policy:
    """Return a policy that plans the micro-batches of a pipeline; `OFF`: the policy itself."""
    if mode is Mode.AUTO:
        mode = Mode.OFF if getattr(policy, "bounds_batches", False) else Mode.CYCLE
    return policy if mode is Mode.OFF else MicroBatches(policy, mode)
