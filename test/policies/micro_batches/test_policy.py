"""Micro-batches around any policy."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

import pytest

from test.policies.builders import generation, talking
from test.policies.micro_batches.served import Served
from timely_llm.conformance.check import Check
from timely_llm.conformance.policies import POLICY_CHECKS, PolicyBench
from timely_llm.core.generation import Generation, StreamGeneration
from timely_llm.core.reason import Cause
from timely_llm.core.step import Capacity, StepContent, StepPlan
from timely_llm.policies.contract import Policy
from timely_llm.policies.fcfs import Stream
from timely_llm.policies.micro_batches.flow_shop import (
    Affine,
    FlowShop,
    shortest_cycle,
    smallest_gap,
)
from timely_llm.policies.micro_batches.policy import MicroBatches, Mode, in_micro_batches
from timely_llm.policies.micro_batches.token_budget import Throttle
from timely_llm.policies.pipeline_time import PipelineTime
from timely_llm.policies.registry import POLICIES, make_policy
from timely_llm.policies.step_time import StepTime

DUE = [Mode.CYCLE_DUE, Mode.CYCLE_OWN]
MODES = [mode for mode in Mode if mode not in (Mode.AUTO, Mode.OFF, *DUE)]
ROOMY = Capacity(1_000_000, 256, 2048, stages=4, micro_batches=8)
IN_FLIGHT = (StepContent(rows=1),) * 8
DECISIONS = [
    check
    for check in POLICY_CHECKS
    if check.name not in ("everyone-is-served", "a-year-later", "forgets-what-ended")
]


def time_of(
    stage: tuple[float, float] = (0.01, 0.001), link: tuple[float, float] = (0.002, 0.0005)
) -> PipelineTime:
    """Return the seconds of four stages alike."""
    return PipelineTime(
        [StepTime(stage[0], stage[1], stage[1])] * 4, [StepTime(link[0], link[1], link[1])] * 3
    )


class OnStages:
    """Micro-batches of four stages, whatever the capacity says."""

    whole_plans = False

    def __init__(self, policy: Policy, mode: Mode) -> None:
        self._inner = MicroBatches(policy, mode)

    @property
    def explain(self) -> bool:
        return self._inner.explain

    @explain.setter
    def explain(self, on: bool) -> None:
        self._inner.explain = on

    def plan(
        self,
        now: float,
        generations: Collection[Generation],
        step_time: StepTime,
        capacity: Capacity,
    ) -> StepPlan:
        part = StepTime(*(seconds / 4 for seconds in step_time.coefficients))
        pipeline = PipelineTime([part] * 4, [StepTime(0.001, 0.0, 0.0001)] * 3)
        capacity = replace(capacity, stages=4, micro_batches=6)
        return self._inner.plan(now, generations, pipeline, capacity)


class Pipe:
    """A pool of which steps are in flight, without an engine."""

    def __init__(
        self,
        policy: Policy,
        pool: Sequence[Generation],
        capacity: Capacity = ROOMY,
        time: PipelineTime | None = None,
    ) -> None:
        self.policy, self.pool, self.capacity = policy, pool, capacity
        self.time = time or time_of()
        self.in_flight: list[StepPlan] = []

    def plan(self) -> StepPlan:
        capacity = replace(self.capacity, in_flight=IN_FLIGHT[: len(self.in_flight)])
        return self.policy.plan(0.0, self.pool, self.time, capacity)

    def step(self) -> StepPlan:
        """Submit a step if there is one."""
        step = self.plan()
        if not step:
            return step
        for key, tokens in step.entries:
            one = next(g for g in self.pool if g.key == key)
            assert 1 <= tokens <= one.to_compute, "it waits for no step in flight"
            one.context_tokens += tokens
            one.to_compute -= tokens
            one.pending_tokens += one.to_compute == 0
        self.in_flight.append(step)
        return step

    def fill(self) -> list[StepPlan]:
        """Submit steps until the policy plans none."""
        while self.step():
            assert len(self.in_flight) <= self.capacity.micro_batches
        return self.in_flight

    def collect(self) -> None:
        """Let the oldest step end."""
        for key, _ in self.in_flight.pop(0).entries:
            one = next(g for g in self.pool if g.key == key)
            if one.pending_tokens:
                one.pending_tokens, one.to_compute = 0, 1
                one.token_ids.append(0)


def pool_of(rows: int, *prompts: int) -> list[Generation]:
    pool: list[Generation] = [talking(f"r{row}") for row in range(rows)]
    pool += [generation(f"p{i}", float(i), to_compute=tokens) for i, tokens in enumerate(prompts)]
    for one in pool:
        one.max_tokens = 64
    return pool


def test_the_mode_off_is_the_policy_itself() -> None:
    policy = Stream()
    assert in_micro_batches(policy, Mode.OFF) is policy
    assert in_micro_batches(make_policy("fcfs")).whole_plans


@pytest.mark.parametrize("name", POLICIES)
def test_a_policy_that_bounds_its_own_batches_keeps_its_steps_unless_a_rule_is_named(
    name: str,
) -> None:
    policy = make_policy(name)
    bounds = name in ("timely", "timelyllm", "edf", "fcfs-segments", "slice", "timely+slice")
    assert (in_micro_batches(policy) is policy) is bounds
    named = in_micro_batches(policy, Mode.CYCLE)
    assert isinstance(named, MicroBatches) and named.mode is Mode.CYCLE


@pytest.mark.parametrize("mode", MODES)
def test_an_engine_of_one_stage_gets_the_plans_of_the_policy(mode: Mode) -> None:
    pool = pool_of(3, 40)
    one_stage = replace(ROOMY, stages=1, micro_batches=3)
    plan = MicroBatches(Stream(), mode).plan(0.0, pool, StepTime(), one_stage)
    assert plan == Stream().plan(0.0, pool, StepTime(), one_stage)


@pytest.mark.parametrize("mode", MODES)
def test_in_one_stage_the_policy_sees_none_that_waits_for_a_step(mode: Mode) -> None:
    pool = pool_of(3)
    pool[1].to_compute, pool[1].pending_tokens = 0, 1
    one_stage = replace(ROOMY, stages=1, micro_batches=3, in_flight=IN_FLIGHT[:1])
    plan = MicroBatches(Stream(), mode).plan(0.0, pool, StepTime(), one_stage)
    assert plan.keys == {"r0", "r2"}


@pytest.mark.parametrize("mode", MODES)
def test_decoding_sequences_are_spread_evenly(mode: Mode) -> None:
    pipe = Pipe(MicroBatches(Stream(), mode), pool_of(64))
    sizes = [len(step.entries) for step in pipe.fill()]
    assert sum(sizes) == 64
    number = len(sizes)
    assert sizes[0] == -(-64 // number)
    if mode in (Mode.BUDGET_ONLY, Mode.THROTTLE, Mode.FIXED_CHUNK):
        assert sizes == [16] * 4
    else:
        assert pipe.time.micro_batches == number
    assert not pipe.plan()
    for _ in range(3 * number):  # each of them goes round again
        pipe.collect()
        assert len(pipe.step().entries) in (64 // number, -(-64 // number), 64 % sizes[0])


@pytest.mark.parametrize(
    ("stage", "link"),
    [((0.01, 0.001), (0.002, 0.0005)), ((0.0, 0.001), (0.0, 0.0)), ((0.05, 0.0), (0.01, 0.001))],
)
def test_the_number_of_micro_batches_is_that_of_the_mode(
    stage: tuple[float, float], link: tuple[float, float]
) -> None:
    shop = FlowShop((Affine(*stage),) * 4, (Affine(*link),) * 3)
    chosen = {
        Mode.PAPER: smallest_gap(4, 8, 48, Affine(*stage).seconds, Affine(*link).seconds),
        Mode.CYCLE: shortest_cycle(shop.rounded(), 48, 8),
        Mode.BUDGET_ONLY: 4,
        Mode.THROTTLE: 4,
        Mode.FIXED_CHUNK: 4,
    }
    for mode, number in chosen.items():
        pipe = Pipe(MicroBatches(Stream(), mode), pool_of(48))
        pipe.time = time_of(stage, link)
        assert len(pipe.fill()) == number, mode
        assert pipe.time.micro_batches == number


@pytest.mark.parametrize("mode", MODES)
def test_without_known_times_of_stages_there_are_as_many_as_stages(mode: Mode) -> None:
    policy = MicroBatches(Stream(), mode)
    capacity = replace(ROOMY, in_flight=IN_FLIGHT[:3])
    assert policy.plan(0.0, pool_of(8), StepTime(), capacity)
    assert not policy.plan(0.0, pool_of(8), StepTime(), replace(capacity, in_flight=IN_FLIGHT[:4]))


def prompts_in(steps: Sequence[StepPlan]) -> list[list[int]]:
    return [[tokens for _, tokens in step.entries if tokens > 1] for step in steps]


def test_algorithm_1_spreads_prompts_with_one_chunk_in_each_micro_batch() -> None:
    pipe = Pipe(MicroBatches(Stream(), Mode.BUDGET_ONLY), pool_of(8, 100, 300))
    # A budget is a quarter of the prompts and of the rows; rows come first, and all are free now.
    assert pipe.step().entries == (*((f"r{row}", 1) for row in range(8)), ("p0", 102 - 8))
    assert prompts_in(pipe.fill()) == [[94], [6], [78], [78]]


def test_a_budget_that_is_not_spent_returns() -> None:
    pipe = Pipe(MicroBatches(Stream(), Mode.BUDGET_ONLY), pool_of(0, 52, 348))
    # Budgets of 100: the first prompt leaves 48, which the next four share. One token more is that
    # of the first prompt, which will decode.
    assert prompts_in(pipe.fill()) == [[52], [88], [88], [88]]


@pytest.mark.parametrize("mode", [Mode.BUDGET_ONLY, Mode.PAPER])
def test_all_prompts_are_computed_whatever_the_budgets(mode: Mode) -> None:
    prompts = (7, 450, 2, 90, 1000, 33)
    pipe = Pipe(MicroBatches(Stream(), mode), pool_of(5, *prompts))
    for _ in range(60):
        assert all(len(chunks) <= 1 for chunks in prompts_in(pipe.fill()))
        pipe.collect()
    assert all(one.to_compute <= 1 for one in pipe.pool)


def prompts_beside(due_s: float, mode: Mode) -> list[int]:
    """Return the prompt tokens of the micro-batches beside one person's answer.

    Args:
        due_s: when its next token is due, seconds from now.
        mode: rule of the micro-batches.
    """
    pool = pool_of(8, *[1000] * 4)
    for one in pool[:8]:
        assert isinstance(one, StreamGeneration)
        one.first_s = due_s - one.request.slo.tpot_s * len(one.token_ids)
    pipe = Pipe(MicroBatches(Stream(), mode), pool, time=time_of((0.02, 0.0002), (0.001, 0.00005)))
    found = []
    for _ in range(4):
        pipe.fill()
        found.append(sum(n for key, n in pipe.in_flight[0].entries if key.startswith("p")))
        pipe.collect()
    return found


def test_chunks_are_no_longer_than_due_times_afford() -> None:
    soonest = prompts_beside(60.0, Mode.CYCLE)
    assert prompts_beside(60.0, Mode.CYCLE_DUE) == soonest
    assert prompts_beside(0.1, Mode.CYCLE) == soonest
    assert max(prompts_beside(0.1, Mode.CYCLE_DUE)) < max(soonest)


def test_what_a_chunk_would_make_late_has_a_micro_batch_without_one() -> None:
    assert all(prompts_beside(60.0, Mode.CYCLE_OWN))
    beside = [prompts_beside(due_s / 20, Mode.CYCLE_OWN) for due_s in range(1, 10)]
    assert any(not all(chunks) for chunks in beside)
    assert all(any(chunks) for chunks in beside), "prompts go on in the others"


def test_a_fixed_chunk_has_decoding_sequences_first_and_prompts_in_the_rest() -> None:
    capacity = replace(ROOMY, max_step_tokens=100)
    pipe = Pipe(MicroBatches(Stream(), Mode.FIXED_CHUNK), pool_of(64, 250, 300), capacity)
    steps = pipe.fill()
    assert [len(step.entries) for step in steps] == [17, 17, 18, 17]
    # A row of the last one is kept for the first prompt, which will decode.
    assert prompts_in(steps) == [[84], [84], [82, 2], [83]]


def test_throttling_follows_the_released_rule() -> None:
    pipe = Pipe(MicroBatches(Stream(), Mode.THROTTLE), pool_of(8, 900, 700))
    held = sum(one.kv_tokens for one in pipe.pool)
    free = ROOMY.free_tokens
    budget = Throttle(released=True).budget(1600, 2, free / (free + held), 8, 4)
    step = pipe.step()
    assert budget.prefill == sum(prompts_in([step])[0]) == 200
    assert len(step.entries) == budget.decode + 1


@pytest.mark.parametrize("mode", MODES)
def test_a_cycle_in_which_only_prompts_wait_has_no_more_tokens_than_planned(mode: Mode) -> None:
    pipe = Pipe(MicroBatches(Stream(), mode), pool_of(0, 400))
    for _ in range(40):
        pipe.fill()
        pipe.collect()
    assert pipe.pool[0].context_tokens >= 400


class CountsSteps(Stream):
    """Takes the generations in turns: each call is a step."""

    counts_steps = True

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def plan(
        self,
        now: float,
        generations: Collection[Generation],
        step_time: StepTime,
        capacity: Capacity,
    ) -> StepPlan:
        self.calls += 1
        return super().plan(now, generations, step_time, capacity)


@pytest.mark.parametrize("mode", MODES)
def test_a_policy_that_counts_steps_gets_one_call_for_each_cycle(mode: Mode) -> None:
    policy = CountsSteps()
    pipe = Pipe(MicroBatches(policy, mode), pool_of(64))
    for _ in range(200):
        pipe.fill()
        pipe.collect()
    tokens = [len(one.token_ids) - 1 for one in pipe.pool]
    assert policy.calls - 2 <= min(tokens) <= max(tokens) <= policy.calls


@pytest.mark.parametrize("mode", MODES)
def test_a_step_that_is_not_submitted_takes_nothing_from_a_column(mode: Mode) -> None:
    policy = CountsSteps()
    pipe = Pipe(MicroBatches(policy, mode), pool_of(64))
    for _ in range(50):
        pipe.plan()
        pipe.fill()
        pipe.collect()
    tokens = [len(one.token_ids) - 1 for one in pipe.pool]
    assert policy.calls - 2 <= min(tokens) <= max(tokens) <= policy.calls


@pytest.mark.parametrize("mode", MODES)
def test_each_generation_has_a_reason_and_those_of_other_micro_batches_wait_for_their_turn(
    mode: Mode,
) -> None:
    policy = MicroBatches(Stream(), mode)
    policy.explain = True
    pipe = Pipe(policy, pool_of(64, 40))
    step = pipe.step()
    reasons = dict(step.reasons)
    assert reasons.keys() == {one.key for one in pipe.pool}
    assert {key for key, reason in reasons.items() if reason.cause.joined} == step.keys
    assert {reasons[key].cause for key in reasons.keys() - step.keys} == {Cause.MICRO_BATCH}


def test_a_prompt_without_room_for_its_end_waits_for_memory() -> None:
    pool = pool_of(2, 40)
    free = 2 * 63 + 39 + 63  # what the two may still decode; the third has decoded as much by then
    policy = MicroBatches(Stream(), Mode.CYCLE)
    policy.explain = True
    slow = time_of(link=(0.0, 0.5))  # an eviction costs more than it saves
    assert "p0" in Pipe(policy, pool, replace(ROOMY, free_tokens=free), slow).plan().keys
    step = Pipe(policy, pool, replace(ROOMY, free_tokens=free - 1), slow).plan()
    assert "p0" not in step.keys
    assert dict(step.reasons)["p0"] == (Cause.MEMORY, 1)


def test_in_an_idle_pipeline_a_step_is_made_even_if_a_budget_leaves_none() -> None:
    pool = pool_of(0, 40)
    resting = talking("r")
    resting.max_tokens = 64
    capacity = replace(ROOMY, free_tokens=0)

    class TheNewestFirst(Stream):
        def plan(
            self,
            now: float,
            generations: Collection[Generation],
            step_time: StepTime,
            capacity: Capacity,
        ) -> StepPlan:
            return StepPlan((("p0", 40),), ("r",))

    step = MicroBatches(TheNewestFirst(), Mode.THROTTLE).plan(
        0.0, [resting, *pool], time_of(), capacity
    )
    assert step.entries == (("p0", 40),)
    assert step.evictable == ("r",)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("policy", ["deadline", "slice"])
@pytest.mark.parametrize("check", DECISIONS, ids=lambda check: check.name)
def test_micro_batches_keep_the_contract_of_policies(
    policy: str, mode: Mode, check: Check[PolicyBench]
) -> None:
    check(PolicyBench(lambda: OnStages(make_policy(policy), mode), seed=None))


@pytest.mark.parametrize("mode", [*MODES, *DUE])
@pytest.mark.parametrize("stages", [2, 4])
def test_answers_are_those_of_one_stage(mode: Mode, stages: int) -> None:
    answers = {f"s{i}": " ".join(f"word{j}" for j in range(3 + i)) for i in range(12)}
    told = []
    for made in (Served(answers), Served(answers, MicroBatches(Stream(), mode), stages)):
        made.run()
        told.append({key: answer.text for key, answer in made.sink.answers.items()})
        assert made.loop.free_kv_tokens == made.free_at_start
    assert told[0] == told[1] == answers
