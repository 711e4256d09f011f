"""One robot executing one plan."""

import math

import numpy as np
import pytest

from timely_llm.resources import resource
from timely_llm.robots.epoch_run import ExecutionEvent
from timely_llm.robots.execution import PlanExecution
from timely_llm.robots.world import World
from timely_llm.skills.skill_set import load_skill_set

DRONE = load_skill_set(resource("config/skill_sets/drone.yaml"))
MOVE_S = 1.8144 + 0.0072 * 50


def start(world: World | None = None) -> PlanExecution:
    return PlanExecution(
        DRONE, world or World(), np.random.default_rng(0), asked_s=10.0, spread=0.0
    )


def calls(events: list[ExecutionEvent]) -> list[str]:
    return [str(h.call) for h in events if h.kind == "call"]


def finish(run: PlanExecution) -> list[ExecutionEvent]:
    """Let the run go on until it has nothing to do."""
    events = run.drain()
    while run.wake_s < math.inf:
        run.wake(run.wake_s)
        events += run.drain()
    return events


def test_response_is_from_asking_to_the_first_action() -> None:
    run = start()
    run.receive(0, "mf(50);", False, 10.3)
    assert run.response_s == pytest.approx(0.3)
    assert run.wake_s == pytest.approx(10.3 + MOVE_S)
    finish(run)
    assert run.wake_s == math.inf
    run.wake(math.inf)
    assert run.wake_s == math.inf, "no call runs"


def test_waiting_is_response_and_later_gaps() -> None:
    run = start()
    run.receive(0, "mf(50);", False, 10.3)
    finish(run)
    run.receive(1, "mf(50);", False, 10.3 + MOVE_S + 0.7)
    assert run.waiting_s == pytest.approx(0.3 + 0.7)
    finish(run)
    run.receive(2, "->True;", True, 100.0)
    assert run.ended
    assert run.returned


def test_a_segment_in_time_adds_no_waiting() -> None:
    run = start()
    run.receive(0, "mf(50);", False, 10.3)
    run.receive(1, "mf(50);", False, 11.0)
    finish(run)
    assert run.waiting_s == pytest.approx(0.3)


def test_segments_are_reported_when_they_start_and_finish() -> None:
    run = start()
    run.receive(0, "tp();", False, 10.1)
    run.receive(1, "mf(50);", False, 10.2)
    kinds = [(h.kind, h.index) for h in finish(run)]
    assert kinds == [
        ("started", 0), ("call", 0), ("finished", 0),
        ("started", 1), ("call", 1), ("finished", 1),
    ]  # fmt: skip


def test_a_segment_that_comes_twice_is_executed_once() -> None:
    run = start()
    run.receive(0, "mf(50);", False, 10.1)
    run.receive(0, "mf(50);", False, 10.2)
    assert calls(finish(run)) == ["mf(50)"]


def test_what_the_robot_sees_decides() -> None:
    plan = ("?iv('cat'){", "g('cat');", "};tp();")
    seen, unseen = start(World(in_view=["cat"])), start()
    for run in (seen, unseen):
        for index, text in enumerate(plan):
            run.receive(index, text, index == 2, 10.0 + index / 100)
    assert calls(finish(seen)) == ["iv('cat')", "g('cat')", "tp()"]
    events = finish(unseen)
    assert calls(events) == ["iv('cat')", "tp()"]
    assert [h.index for h in events if h.skipped] == [1]
    assert seen.ended
    assert unseen.ended
    assert not seen.returned


def test_a_return_inside_a_block_ends_the_plan_before_the_rest_has_come() -> None:
    run = start(World(in_view=["cat"]))
    run.receive(0, "?iv('cat'){", False, 10.1)
    run.receive(1, "->True;", False, 10.2)
    assert run.ended
    assert run.returned


def test_segments_that_got_lost_are_made_up_for_by_the_whole_plan() -> None:
    run = start()
    run.receive(0, "tp();", False, 10.1)
    run.complete("tp();l('Hi');->True;", 10.5)
    assert calls(finish(run)) == ["tp()", "l('Hi')"]
    assert run.ended


def test_a_complete_plan_adds_nothing_to_what_has_come() -> None:
    run = start()
    run.receive(0, "tp();", False, 10.1)
    run.complete("tp();", 10.5)
    assert run.ended
    assert run.segments == 1
    assert calls(run.drain()) == ["tp()"]


def test_a_final_segment_that_overtakes_others_waits_for_them() -> None:
    run = start()
    run.receive(2, "->True;", True, 10.1)
    run.receive(0, "tp();", False, 10.2)
    assert not run.ended
    run.receive(1, "l('Hi');", False, 10.3)
    assert calls(finish(run)) == ["tp()", "l('Hi')"]
    assert run.ended


def test_a_lost_segment_in_the_middle_is_made_up_for_by_the_whole_plan() -> None:
    run = start()
    run.receive(0, "tp();", False, 10.1)
    run.receive(2, "->True;", True, 10.2)
    run.complete("tp();l('Hi');->True;", 10.3)
    assert calls(finish(run)) == ["tp()", "l('Hi')"]
    assert run.ended


def test_a_blocking_segment_finishes_with_what_its_call_returned() -> None:
    arm = load_skill_set(resource("config/skill_sets/arm.yaml"))
    world = World(in_view=["pen", "blue ball"])
    run = PlanExecution(arm, world, np.random.default_rng(0), asked_s=10.0, spread=0.0)
    run.receive(0, "look();", False, 10.1)
    finished = [(h.index, h.value) for h in finish(run) if h.kind == "finished"]
    assert finished == [(0, "pen, blue ball")]
    run.receive(1, "pick('pen');", True, 11.0)
    assert [h.value for h in finish(run) if h.kind == "finished"] == [None]
