"""What the most urgent plan can afford (Ling et al. 2024, §4.4)."""

import pytest

from test.policies.builders import generation, running, talking
from timely_llm.core.time_utility import NORMAL, URGENT
from timely_llm.policies.step_time import StepTime
from timely_llm.policies.timely import WorstCase

STEP = StepTime(0.02, 0.0, 0.001)


def test_the_budget_is_the_time_to_the_zero_point() -> None:
    urgent = running("u", utility=URGENT, segment_tokens=1)  # nine to go, 0.18 s; zero at 0.5 s
    one = talking("s")
    assert WorstCase([urgent], 0.31, STEP, 10).allows(one)
    assert not WorstCase([urgent], 0.33, STEP, 10).allows(one)


def test_a_prompt_delays_one_step() -> None:
    urgent = running("u", utility=URGENT, segment_tokens=1)
    prompt = generation("n", to_compute=100)  # 0.1 s more
    assert WorstCase([urgent], 0.21, STEP, 10).allows(prompt)
    assert not WorstCase([urgent], 0.23, STEP, 10).allows(prompt)
    batch = WorstCase([urgent], 0.21, STEP, 10)
    batch.add(prompt)
    assert not batch.allows(prompt), "one prompt it can afford, two not"


@pytest.mark.parametrize("now", [0.6, 30.0])
def test_plans_past_their_zero_point_and_streams_bound_no_batch(now: float) -> None:
    batch = [running("u", utility=URGENT), talking("s")]
    assert WorstCase(batch, now, STEP, 10).allows(generation("n", to_compute=2000))


def test_a_plan_that_joins_is_protected_from_then_on() -> None:
    batch = WorstCase([running("n", utility=NORMAL)], 0.4, STEP, 10)
    newcomer = talking("s")
    assert batch.allows(newcomer)
    batch.add(running("u", utility=URGENT))
    assert not batch.allows(newcomer)
