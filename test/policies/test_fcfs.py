"""First come, first served."""

from test.policies.builders import ROOMY, generation, running, stream, suspended, talking
from test.policies.lanes import WORDS, Lanes, asked
from timely_llm.core.slo import TEXT
from timely_llm.core.step import Capacity
from timely_llm.policies.fcfs import Fcfs, Orca, Stream
from timely_llm.policies.step_time import StepTime

STEP = StepTime()


def test_all_requests_take_part_in_order_of_arrival() -> None:
    pool = [generation("b", 2.0), running("a", arrival_s=1.0), suspended("c", 9.0, arrival_s=3.0)]
    plan = Stream().plan(3.0, pool, STEP, ROOMY)
    assert plan.entries == (("a", 1), ("b", 110), ("c", 1))


def test_only_fcfs_keeps_whole_plans_back() -> None:
    assert Fcfs.whole_plans
    assert not Stream.whole_plans
    assert not Orca.whole_plans


def test_a_harness_bounds_the_batch_and_the_admissions_of_a_step() -> None:
    waiting = [generation(f"g{i}", 2.0 + i) for i in range(3)]
    pool = [*waiting, running("a"), suspended("b", 9.0)]
    one = Stream(admissions=1).plan(6.0, pool, STEP, ROOMY)
    assert one.entries == (("a", 1), ("b", 1), ("g0", 110))
    assert Stream(rows=2).plan(6.0, pool, STEP, ROOMY).keys == {"a", "b"}
    assert Stream(rows=4).plan(6.0, pool, STEP, ROOMY).keys == {"a", "b", "g0", "g1"}


def test_long_prompts_are_prefilled_in_chunks() -> None:
    small = Capacity(free_tokens=1000, max_rows=8, max_step_tokens=64)
    pool = [running("a"), generation("b", 1.0)]
    assert Fcfs().plan(1.0, pool, STEP, small).entries == (("a", 1), ("b", 63))


def test_orca_gives_plans_and_streams_the_same_rate() -> None:
    pool = [talking("v", arrival_s=1.0), running("p"), stream("s", 2.0)]
    assert Orca().plan(2.0, pool, STEP, ROOMY).entries == (("p", 1), ("v", 1), ("s", 40))


def test_orca_serves_all_in_the_end_however_little_memory_there_is() -> None:
    answers = {f"s{n}": WORDS * 2 for n in range(8)}
    lanes = Lanes(answers, Orca(), kv_tokens=Lanes({}, Orca()).prefix_tokens + 120)
    lanes.serve([(0.0, asked(key, TEXT)) for key in answers])
    assert {key: answer.text for key, answer in lanes.sink.answers.items()} == answers
