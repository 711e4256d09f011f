"""Plans in simulated worlds, on worked examples."""

from __future__ import annotations

import pytest

from test.serving.scripted import DRONE
from timely_llm.progressive.ensemble.dry_run import DryRun, best_plan, dry_run
from timely_llm.robots.world import World

STEPS = ["find the cat", "take a picture of the cat"]


def run(plan: str, *in_view: str, steps: list[str] = STEPS) -> DryRun:
    return dry_run(plan, steps, DRONE, World(in_view))


def best(*plans: str, steps: list[str] = STEPS) -> str:
    return plans[best_plan(plans, steps, DRONE, World)]


def test_a_step_is_done_by_a_call_of_its_skill_or_with_its_object() -> None:
    found = run("s('cat');tp();", "cat")
    assert (found.ended, found.steps, found.beside) == (True, 2, 0)
    assert found.early < 0.0


def test_steps_count_in_their_order_only() -> None:
    assert run("tp();s('cat');", "cat").steps == 1
    assert run("tp();s('cat');tp();", "cat").steps == 2


def test_one_call_does_one_step() -> None:
    assert run("s('cat');", "cat").steps == 1


def test_calls_of_no_step_are_counted() -> None:
    assert run("s('cat');mf(50);tc(90);tp();", "cat").beside == -2


def test_what_a_condition_leaves_out_is_not_done() -> None:
    plan = "?iv('cat')==True{tp();};"
    assert run(plan, "cat").steps == 2
    assert run(plan).steps == 1


@pytest.mark.parametrize("text", ["s('cat'", "fly();", "not a plan"])
def test_what_is_no_plan_does_nothing(text: str) -> None:
    assert run(text) == DryRun(0)


def test_a_plan_without_an_end_has_not_ended() -> None:
    assert not run("99{99{tp();};};").ended


def test_the_plan_that_does_more_steps_is_taken() -> None:
    assert best("mf(50);tp();", "s('cat');tp();") == "s('cat');tp();"
    assert best("s('cat');tp();", "mf(50);tp();") == "s('cat');tp();"


def test_of_equal_steps_fewer_other_calls_are_better_and_then_less_time() -> None:
    assert best("s('cat');mf(50);tp();", "s('cat');tp();") == "s('cat');tp();"
    steps = ["move forward"]
    assert best("mf(300);", "mf(50);", steps=steps) == "mf(50);"


def test_of_equal_plans_the_first_is_taken_and_a_wrong_one_never() -> None:
    assert best_plan(["tp();", "tp();"], STEPS, DRONE, World) == 0
    assert best("s('cat'", "tp();") == "tp();"


def test_a_plan_that_reacts_to_an_absent_object_is_run_without_it_too() -> None:
    waits = "99{?iv('cat')==True{->True;};99{tc(30);};};"
    ends = "s('cat');tp();"
    assert best(waits, ends) == ends
