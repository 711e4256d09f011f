"""FastServe's skip-join multi-level feedback queue (Wu et al. 2023)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from test.policies.builders import ROOMY, stream, talking
from test.policies.lanes import WORDS, Lanes, asked
from test.serving.scripted import request
from timely_llm.conformance.policies.generations import capacities, mixed_pools
from timely_llm.core.errors import ConfigurationError
from timely_llm.core.generation import Generation
from timely_llm.core.slo import TEXT
from timely_llm.core.step import Capacity
from timely_llm.policies.fcfs import Orca
from timely_llm.policies.least_served import FastServe
from timely_llm.policies.registry import make_policy
from timely_llm.policies.step_time import StepTime

STEP = StepTime(0.01, 0.0, 0.001)


def test_a_long_prompt_skips_the_first_queues() -> None:
    # 10 ms and 1 ms a token: the first queue, 40 ms: the third one.
    long, short = stream("l", 0.0, to_compute=30), talking("s", arrival_s=1.0)
    assert FastServe(rows=1).plan(1.0, [long, short], STEP, ROOMY).keys == {"s"}
    even = stream("e", 1.0, to_compute=30)
    assert FastServe(rows=1).plan(1.0, [long, even], STEP, ROOMY).keys == {"l"}, "then by arrival"


def test_a_used_up_quantum_gives_way_to_requests_that_have_run_less() -> None:
    policy = FastServe(rows=1)
    old, new = talking("o"), talking("n", arrival_s=0.018)
    for step in range(3):  # two steps use up 10 ms
        assert policy.plan(0.006 * step, [old], STEP, ROOMY).keys == {"o"}
    plans = [policy.plan(0.006 * step, [old, new], STEP, ROOMY) for step in range(3, 6)]
    assert [plan.keys for plan in plans] == [{"n"}, {"n"}, {"o"}]


def test_each_queue_has_twice_the_quantum_of_the_one_before() -> None:
    policy = FastServe(rows=1)
    pool = [talking("a"), talking("b")]
    order = "".join(
        "".join(policy.plan(0.006 * step, pool, STEP, ROOMY).keys) for step in range(60)
    )
    turns = [len(turn) for turn in order.replace("ab", "a b").replace("ba", "b a").split()]
    assert turns[:8] == [2, 2, 4, 4, 7, 7, 14, 14]


def test_a_request_that_has_waited_too_long_comes_first() -> None:
    policy = FastServe(rows=1, starvation_s=1.0)
    long = stream("l", to_compute=2000)
    for step in range(100):
        newcomer = talking(f"s{step}", arrival_s=0.01 * step)
        assert policy.plan(0.01 * step, [long, newcomer], STEP, ROOMY).keys == {newcomer.key}
    newcomer = talking("s", arrival_s=1.0)
    plans = [policy.plan(1.0, [long, newcomer], STEP, ROOMY)]
    plans.append(policy.plan(1.02, [long, newcomer], STEP, ROOMY))
    assert "l" in plans[0].keys | plans[1].keys


@pytest.mark.parametrize("option", ["quantum_s", "starvation_s"])
def test_options_that_are_not_possible_are_refused(option: str) -> None:
    with pytest.raises(
        ConfigurationError, match=f"fastserve: {option} must be above 0 and finite, not 0"
    ):
        make_policy("fastserve", **{option: 0.0})


def test_where_all_requests_fit_it_is_continuous_batching() -> None:
    answers = {f"s{n}": WORDS * n for n in range(1, 6)} | {"p": "mf(50);->True;"}
    times = []
    for policy in (FastServe(), Orca()):
        lanes = Lanes(answers, policy)
        lanes.serve(
            [(0.2 * n, request(k) if k == "p" else asked(k, TEXT)) for n, k in enumerate(answers)]
        )
        times.append(lanes.token_times_s)
    assert times[0] == times[1]


@pytest.mark.parametrize("rows", [1, 3, None])
def test_all_are_served_in_the_end_however_little_memory_there_is(rows: int | None) -> None:
    answers = {f"s{n}": WORDS * (1 + n % 3) for n in range(8)}
    policy = FastServe(rows=rows)
    lanes = Lanes(answers, policy, kv_tokens=Lanes({}, policy).prefix_tokens + 160)
    lanes.serve([(0.1 * n, asked(key, TEXT)) for n, key in enumerate(answers)])
    assert {key: answer.text for key, answer in lanes.sink.answers.items()} == answers


@given(mixed_pools(), capacities, st.integers(1, 8), st.lists(st.floats(0, 5), max_size=4))
def test_a_plan_fits_the_engine(
    pool: list[Generation], capacity: Capacity, rows: int, pauses_s: list[float]
) -> None:
    policy = FastServe(rows=rows)
    by_key = {g.key: g for g in pool}
    room = capacity.free_tokens + sum(g.kv_tokens for g in pool)
    now = 10.0
    for pause_s in (0.0, *pauses_s):
        now += pause_s
        plan = policy.plan(now, pool, STEP, capacity)
        planned = sum(tokens for _, tokens in plan.entries)
        assert len(plan.entries) <= min(capacity.max_rows, rows)
        assert planned <= capacity.max_step_tokens
        assert planned <= capacity.free_tokens + sum(by_key[k].kv_tokens for k in plan.evictable)
        if pool and all(g.to_compute + g.kv_tokens <= room for g in pool):
            assert plan
