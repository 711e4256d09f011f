from hypothesis import given
from hypothesis import strategies as st

from test.policies.builders import DEAR, ROOMY, generation, running, suspended
from timely_llm.conformance.policies.generations import plan_pools
from timely_llm.core.generation import PlanGeneration
from timely_llm.core.step import Capacity
from timely_llm.core.time_utility import URGENT
from timely_llm.engines.simulated import PROFILES
from timely_llm.experiments.results.metrics import row
from timely_llm.experiments.sources import composed
from timely_llm.experiments.virtual.simulation import SimulationSettings, simulate
from timely_llm.policies.deadline.plan_step import (
    Deliverable,
    best_batch_size,
    by_loss_of_waiting,
    rows_are_expensive,
)
from timely_llm.policies.deadline.plans import Deadline
from timely_llm.policies.registry import make_policy
from timely_llm.policies.step_time import StepTime

CHEAP = StepTime(0.0216, 0.00015, 0.00011)
SLOW = PROFILES["rtx4060ti-chatglm2-6b"]


def deliverables(pool: list[PlanGeneration], tokens: int = 8) -> list[Deliverable]:
    return [Deliverable(g, ((tokens, 1.0),), 0.2, 10.0) for g in pool]


def test_rows_are_expensive_if_together_they_take_longer_than_the_step_itself() -> None:
    assert [rows_are_expensive(rows, DEAR) for rows in (0, 1, 3, 4, 60)] == [False] * 3 + [True] * 2
    assert not rows_are_expensive(100, CHEAP)


def test_decoding_plans_make_room_for_an_urgent_request_where_rows_are_expensive() -> None:
    decoding = [running(f"r{i}", segment_tokens=4) for i in range(8)]
    urgent = generation("urgent", arrival_s=0.1, utility=URGENT)
    crowd = [*decoding, urgent]
    assert Deadline().plan(0.1, crowd, DEAR, ROOMY).keys == {"urgent"}
    assert Deadline().plan(0.1, crowd, CHEAP, ROOMY).keys == {g.key for g in crowd}
    assert len(Deadline(defer=False).plan(0.1, crowd, DEAR, ROOMY).keys) == 9


def test_a_plan_that_can_earn_nothing_any_more_goes_last() -> None:
    late = [running(f"late{i}", arrival_s=-1.0, utility=URGENT) for i in range(4)]
    fresh = [running(f"fresh{i}", arrival_s=0.1, utility=URGENT) for i in range(2)]
    assert Deadline().plan(0.1, [*late, *fresh], DEAR, ROOMY).keys == {"fresh0", "fresh1"}
    assert Deadline().plan(0.1, late, DEAR, ROOMY).keys


def test_no_plan_runs_ahead_where_rows_are_expensive() -> None:
    needed = [running(f"r{i}") for i in range(4)]
    busy = suspended("busy", robot_free_s=100.0)
    assert "busy" not in Deadline().plan(0.1, [*needed, busy], DEAR, ROOMY).keys
    assert "busy" in Deadline().plan(0.1, [busy], DEAR, ROOMY).keys


def test_a_plan_that_is_set_aside_is_evicted_after_plans_with_busy_robots() -> None:
    decoding = [running(f"r{i}", segment_tokens=4) for i in range(8)]
    busy = suspended("busy", robot_free_s=0.9, context=200)
    urgent = generation("urgent", arrival_s=0.1, utility=URGENT, to_compute=150)
    small = Capacity(free_tokens=120, max_rows=16, max_step_tokens=256)
    plan = Deadline().plan(0.1, [*decoding, busy, urgent], DEAR, small)
    assert plan.keys == {"urgent"}
    assert plan.evictable[0] == "busy"


@given(pool=plan_pools(), now=st.floats(0, 20))
def test_all_plans_are_in_the_line_and_one_takes_part(
    pool: list[PlanGeneration], now: float
) -> None:
    everyone = deliverables(pool)
    line = by_loss_of_waiting(everyone, now, DEAR)
    assert sorted(map(id, line)) == sorted(map(id, everyone))
    assert min(len(line), 1) <= best_batch_size(line, now, DEAR) <= len(line)


def test_equals_share_a_step_while_they_are_worth_more_together_than_in_turn() -> None:
    urgent = [running(f"u{i}", utility=URGENT) for i in range(5)]
    assert best_batch_size(deliverables(urgent, 4), 0.0, DEAR) == 3
    assert best_batch_size(deliverables(urgent, 4), 0.0, CHEAP) == 5


def test_a_slow_device_under_overload_serves_better_than_baselines() -> None:
    trace, settings = composed("wid1", 3), SimulationSettings(load=2, profile=SLOW)
    got = {
        name: row(simulate(trace, make_policy(name), settings))
        for name in ("deadline", "timely", "slice")
    }
    ours = got.pop("deadline")
    assert ours["share_served"] == 1.0
    for measure in ("utility", "urgent_utility"):
        assert ours[measure] > max(other[measure] for other in got.values())
    assert ours["waiting_s"] < min(other["waiting_s"] for other in got.values())
