"""What a live measurement of help counts."""

from __future__ import annotations

from timely_llm.skills.skill_set import load_skill_set
from tools.tiny_planner.batches import SKILL_SETS
from tools.tiny_planner.live_help import LivePlan, calls_of, summary

WRONG = LivePlan(False, True, False, 0, 0.5)
RIGHT = LivePlan(True, True, False, 0, 0.25)
HELPED = LivePlan(True, True, True, 20, 0.5)
LOST = LivePlan(False, False, True, 10, -1.0)


def test_the_calls_of_a_plan_are_those_that_run_if_all_is_found() -> None:
    drone = load_skill_set(SKILL_SETS["drone"])
    plan = "?s('cat'){g('cat');tp();->True;};->False;"
    assert calls_of(plan, drone) == ["s('cat')", "g('cat')", "tp()"]
    assert calls_of("mf(50);d(1);->True;", drone) == ["mf(50)", "d(1)"]


def test_help_is_counted_by_what_the_small_model_alone_gets_wrong() -> None:
    plans = [
        {"direct": WRONG, "progressive": HELPED},
        {"direct": WRONG, "progressive": LOST},
        {"direct": RIGHT, "progressive": HELPED},
    ]
    found = summary(plans)
    assert (found["repaired"]["share"], found["repaired"]["tasks"]) == (0.5, 2)
    assert (found["spoiled"]["share"], found["spoiled"]["tasks"]) == (0.0, 1)
    assert found["progressive"]["exact"]["share"] == 2 / 3
    assert found["progressive"]["cloud_tokens"] == 50 / 3
    assert found["progressive"]["median_response_s"] == 0.5, "a plan without a segment has no time"
    assert summary(plans[2:])["repaired"]["share"] is None
