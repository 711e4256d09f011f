"""FCFS and EDF over segments (Ling et al. 2024, §7.3.2)."""

from test.policies.builders import ROOMY, generation, running, suspended
from timely_llm.core.time_utility import URGENT
from timely_llm.policies.step_time import StepTime
from timely_llm.policies.timely import Edf, FcfsSegments

STEP = StepTime(0.0216, 0.00015, 0.00011)


def test_the_one_that_came_first_goes_first_however_urgent_others_are() -> None:
    queue = [generation("n", 0.0), generation("u", 0.1, utility=URGENT)]
    assert FcfsSegments().plan(0.1, queue, STEP, ROOMY).keys == {"n"}


def test_the_earliest_deadline_goes_first() -> None:
    queue = [generation("n", 0.0), generation("u", 0.1, utility=URGENT)]
    assert Edf().plan(0.1, queue, STEP, ROOMY).keys == {"u"}


def test_a_suspended_generation_keeps_its_first_place() -> None:
    # Its robot is busy for long, but it arrived first: neither baseline sees that.
    queue = [suspended("s", robot_free_s=60.0), generation("n", 2.0)]
    for policy in (FcfsSegments(), Edf()):
        assert policy.plan(2.0, queue, STEP, ROOMY).keys == {"s"}


def test_they_keep_to_the_same_bounds_of_the_batch() -> None:
    urgent = running("u", utility=URGENT, segment_tokens=1)
    for policy in (FcfsSegments(), Edf()):
        assert policy.plan(0.35, [urgent, generation("n")], STEP, ROOMY).keys == {"u"}
