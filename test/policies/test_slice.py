"""SLICE online (Zhou et al. 2025, Algorithm 4)."""

import math
from collections import Counter
from collections.abc import Sequence
from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from test.policies.builders import ROOMY, generation, stream, suspended, talking
from test.policies.lanes import WORDS, Lanes, asked
from test.serving.scripted import request
from timely_llm.conformance.policies.generations import capacities, classes, mixed_pools
from timely_llm.core.errors import ConfigurationError
from timely_llm.core.generation import Generation
from timely_llm.core.slo import REAL_TIME, TEXT, VOICE, Slo, SloClass
from timely_llm.core.step import Capacity, StepPlan
from timely_llm.core.time_utility import URGENT
from timely_llm.policies.registry import make_policy
from timely_llm.policies.slice import Restart, Slice, SliceTask, decode_mask, select
from timely_llm.policies.step_time import StepTime

STEP = StepTime(0.0216, 0.00015, 0.00011)
TESTBED = StepTime(
    0.0168, 0.0093, 0.0,
    table_s=(0.026, 0.035, 0.044, 0.054, 0.063, 0.072, 0.081, 0.095, 0.1286), beyond_s=0.0004,
)  # fmt: skip


def of_rate(rate: float, weight: float = 1.0) -> SloClass:
    return SloClass("own", Slo(tpot_s=1.0 / rate), weight)


def steps(
    policy: Slice, pool: Sequence[Generation], number: int, capacity: Capacity = ROOMY
) -> list[StepPlan]:
    """Return the plans of consecutive steps in which nothing else happens."""
    return [policy.plan(0.0, pool, TESTBED, capacity) for _ in range(number)]


def test_figure_4_is_scanned_column_by_column_and_again() -> None:
    pool = [talking(str(rate), of_class=of_rate(rate)) for rate in (1, 6, 2, 4)]
    plans = steps(Slice(), pool, 12)
    cycle = ["6421", "642", "64", "64", "6", "6"]
    assert ["".join(key for key, _ in plan.entries) for plan in plans] == cycle * 2


def test_an_arrival_and_a_departure_restart_at_column_1() -> None:
    six, one, late = (talking(str(rate), of_class=of_rate(rate)) for rate in (6, 1, 2))
    policy = Slice()
    assert [len(plan.entries) for plan in steps(policy, [six, one], 3)] == [2, 1, 1]
    assert [len(plan.entries) for plan in steps(policy, [six, one, late], 3)] == [3, 2, 1]
    assert [len(plan.entries) for plan in steps(policy, [six, late], 2)] == [2, 2]


def test_an_even_mask_is_an_option() -> None:
    pool = [talking("six", of_class=of_rate(6)), talking("two", of_class=of_rate(2))]
    plans = steps(Slice(even=True), pool, 6)
    assert [len(plan.entries) for plan in plans] == [2, 1, 1, 2, 1, 1]


def test_table_2_is_selected_whole_and_a_tenth_is_not() -> None:
    rates = [10] * 3 + [1 / 0.12] * 4 + [4] * 2
    nine = [talking(f"s{n}", of_class=of_rate(rate)) for n, rate in enumerate(rates)]
    assert len(steps(Slice(), nine, 1)[0].entries) == 9
    ten = [*nine, talking("more", of_class=of_rate(12))]
    served = Counter(key for plan in steps(Slice(), ten, 10) for key, _ in plan.entries)
    assert served == Counter({f"s{n}": c for n, c in enumerate([10] * 3 + [9] * 4 + [4] * 2)})


def test_real_time_tasks_go_first_and_tasks_that_do_not_fit_wait() -> None:
    urgent = [talking(f"r{n}", of_class=REAL_TIME) for n in range(3)]
    readers = [talking(f"t{n}", of_class=TEXT) for n in range(3)]
    plan = steps(Slice(), [*readers, *urgent], 1)[0]
    assert plan.keys == {"r0", "r1", "r2", "t0"}, "20 * 44 ms leave 0.12 s"


def test_a_prompt_is_computed_in_the_first_column_of_its_task() -> None:
    policy = Slice()
    voice = talking("v", of_class=VOICE)
    steps(policy, [voice], 3)
    newcomer = stream("n", of_class=of_rate(2), to_compute=40)
    assert steps(policy, [voice, newcomer], 1)[0].entries == (("v", 1), ("n", 40))


def test_a_prompt_that_is_too_long_for_a_step_takes_nobodys_turn() -> None:
    small = Capacity(10_000, max_rows=8, max_step_tokens=20)
    newcomer, voice = stream("n", of_class=TEXT, to_compute=40), talking("v", of_class=VOICE)
    policy = Slice()
    assert policy.plan(0.0, [newcomer, voice], TESTBED, small).entries == (("v", 1), ("n", 19))
    newcomer.to_compute -= 19
    assert policy.plan(0.0, [newcomer, voice], TESTBED, small).entries == (("n", 20),)
    newcomer.to_compute -= 20
    assert policy.plan(0.0, [newcomer, voice], TESTBED, small).entries == (("n", 1),)


def test_prompts_are_free_or_charged() -> None:
    long = [stream(f"s{n}", of_class=TEXT, to_compute=2000) for n in range(5)]
    slow = StepTime(0.0216, 0.00015, 0.0002)
    assert len(Slice().plan(0.0, long, slow, Capacity(100_000, 8, 20_000)).entries) == 5
    charged = Slice(charge_prefill=True).plan(0.0, long, slow, Capacity(100_000, 8, 20_000))
    assert len(charged.entries) == 1, "0.4 s each beside ten steps of 22 ms"


def test_a_task_that_is_too_much_for_a_cycle_runs_alone_where_no_other_is_selected() -> None:
    greedy = talking("g", of_class=of_rate(100, weight=1000.0))
    plans = steps(Slice(), [talking("t"), greedy], 5)
    assert [plan.keys for plan in plans] == [{"g"}] * 5


def test_the_next_segment_of_a_plan_is_a_real_time_task() -> None:
    reader = talking("t", of_class=REAL_TIME)
    urgent, busy = generation("u", utility=URGENT), suspended("b", robot_free_s=8.0)
    # 4 tokens in 0.2 s, worth 200; 4 tokens in 8 s, worth 100.
    policy, quick = Slice(), StepTime(0.01, 0.0001)
    plans = [policy.plan(0.0, [reader, urgent, busy], quick, ROOMY) for _ in range(20)]
    served = Counter(key for plan in plans for key in plan.keys)
    assert served == {"u": 20, "t": 20, "b": 1}


def test_a_segment_that_is_done_is_a_departure() -> None:
    policy = Slice()
    pool = [talking("t", of_class=of_rate(6)), generation("g")]
    steps(policy, pool, 2)
    pool[1] = suspended("g", robot_free_s=8.0)
    assert len(steps(policy, pool, 1)[0].entries) == 2, "column 1 again"
    assert policy.restarts == {Restart.TASKS: 1, Restart.SEGMENTS: 1}


def test_a_complete_cycle_is_followed_by_another() -> None:
    policy = Slice()
    steps(policy, [talking("t", of_class=of_rate(2))], 5)
    assert policy.restarts == {Restart.TASKS: 1, Restart.CYCLE_END: 2}
    assert not steps(policy, [], 1)[0]
    assert policy.restarts.total() == 3, "no task, no cycle"


def test_utilities_change_by_generated_tokens_and_by_selection() -> None:
    long, new = talking("long", tokens=100), talking("new")
    one_at_a_time = StepTime(0.0, 0.06)
    for policy, expected in (
        (Slice(), "long"),
        (Slice(half_life_tokens=50.0), "new"),
    ):
        assert policy.plan(0.0, [long, new], one_at_a_time, ROOMY).keys == {expected}
    keeping = Slice(keep=2.0)
    keeping.plan(0.0, [new], one_at_a_time, ROOMY)
    assert keeping.plan(0.0, [long, new], one_at_a_time, ROOMY).keys == {"new"}


def test_those_who_are_not_selected_give_up_their_memory_first() -> None:
    full = Capacity(free_tokens=5, max_rows=8, max_step_tokens=512)
    cheap = talking("cheap", of_class=of_rate(10, weight=0.1), first_s=-9.0)
    dear = talking("dear", of_class=of_rate(1, weight=9.0))
    newcomer = stream("new", of_class=of_rate(10, weight=9.0))
    plan = Slice().plan(0.0, [cheap, dear, newcomer], STEP, full)
    assert plan.keys == {"dear", "new"}
    assert plan.evictable == ("cheap",)


@pytest.mark.parametrize("option", ["cycle_s", "half_life_tokens", "keep", "mean_segment_tokens"])
def test_options_that_are_not_possible_are_refused(option: str) -> None:
    with pytest.raises(ConfigurationError, match=f"slice: {option} must be above 0"):
        make_policy("slice", **{option: 0.0})


def test_utilities_stay_numbers() -> None:
    with pytest.raises(ConfigurationError, match="keep must be above 0 and finite, not inf"):
        Slice(keep=math.inf)


def test_in_the_loop_each_stream_has_at_least_its_rate_and_the_engine_never_rests() -> None:
    lanes = Lanes({"v": WORDS * 5, "t": WORDS * 5, "p": "mf(50);tc(90);->True;"}, Slice())
    lanes.serve([(0.0, asked("v", VOICE)), (0.0, asked("t", TEXT)), (0.5, request("p"))])
    assert lanes.rate("v") >= 8.0
    assert lanes.rate("t") >= 10.0
    assert all(answer.slo_met for answer in lanes.sink.answers.values())
    busy_s = sum(step.duration_s for step in lanes.sink.steps)
    assert busy_s == pytest.approx(lanes.clock.now())


@given(
    st.lists(classes, min_size=1, max_size=12), st.booleans(), st.integers(1, 16),
    st.integers(1, 8),
)  # fmt: skip
def test_a_cycle_gives_every_selected_task_its_rate_however_small_the_steps(
    of_classes: list[SloClass], even: bool, step_tokens: int, rows: int
) -> None:
    pool = [talking(f"s{n}", of_class=each) for n, each in enumerate(of_classes)]
    chosen, _ = select(
        [SliceTask(g.key, g.request.slo.tpot_s, g.request.weight) for g in pool],
        STEP.predict_s,
        rows=rows,
    )
    if not chosen:
        return
    columns = {task.key: task.columns for task in chosen}
    capacity = Capacity(10_000, rows, step_tokens)
    policy = Slice(even=even)
    widths = map(sum, zip(*decode_mask(list(columns.values()), even=even), strict=True))
    number = sum(math.ceil(width / min(step_tokens, rows)) for width in widths)
    served = Counter(
        key
        for plan in islice((policy.plan(0.0, pool, STEP, capacity) for _ in iter(int, 1)), number)
        for key, _ in plan.entries
    )
    assert served == columns


@given(mixed_pools(), capacities, st.floats(0, 20))
def test_a_plan_fits_the_engine_and_serves_a_request(
    pool: list[Generation], capacity: Capacity, now: float
) -> None:
    policy = Slice()
    by_key = {g.key: g for g in pool}
    room = capacity.free_tokens + sum(g.kv_tokens for g in pool)
    for _ in range(3):
        plan = policy.plan(now, pool, STEP, capacity)
        assert len(plan.entries) <= capacity.max_rows
        planned = sum(tokens for _, tokens in plan.entries)
        assert planned <= capacity.max_step_tokens
        freed = sum(by_key[key].kv_tokens for key in plan.evictable)
        assert planned <= capacity.free_tokens + freed
        assert plan.keys.isdisjoint(plan.evictable)
        if pool and all(g.to_compute + g.kv_tokens <= room for g in pool):
            assert plan
