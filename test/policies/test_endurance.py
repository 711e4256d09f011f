"""What policies learn stays right, and small, however long they learn."""

import random
from collections import deque

import numpy as np
import pytest

from test import endurance
from test.policies.builders import ROOMY, running, talking
from timely_llm.conformance.policies.service import sizes
from timely_llm.core.generation import State, StreamGeneration
from timely_llm.core.slo import TEXT, VOICE
from timely_llm.core.time_utility import TimeUtility
from timely_llm.policies.deadline.policy import Deadline
from timely_llm.policies.least_served import FastServe
from timely_llm.policies.lengths import (
    CLASSES,
    AnswerLengths,
    DecayingMean,
    SegmentLengths,
)
from timely_llm.policies.step_time import StepTime
from timely_llm.policies.timely import MeanSegmentLength

YEAR_S = 366 * 86_400.0


@endurance.steps
def test_lengths_of_answers_are_those_of_the_last_ones_seen(steps: int) -> None:
    rng, lengths, seen = random.Random(0), AnswerLengths(), deque[int](maxlen=256)
    for step in range(steps):
        tokens = rng.randint(1, 400) if step < steps // 2 else rng.randint(200, 300)
        seen.append(tokens)
        lengths.observe("always the same", tokens)
        lengths.observe(f"of its own {step}", 7)
    expected = sorted(length for length in seen if length > 220)
    assert lengths.to_go("always the same", 220, 4096, 0.5) == expected[len(expected) // 2] - 220
    assert sum(sizes(lengths).values()) <= 2 * (CLASSES + 256 + CLASSES)


@endurance.steps
def test_lengths_of_segments_are_those_of_the_last_ones_seen(steps: int) -> None:
    rng, lengths, most = random.Random(0), SegmentLengths(8), 0
    plan = running("p")
    ours = plan.request.skill_set, plan.request.time_utility.beta, True
    for step in range(steps):
        lengths.observe(ours, rng.choice((3, 30)) if step < steps // 2 else rng.choice((5, 7)))
        lengths.observe(("drone", 1.0 + step, True), 4)
        other = running(f"o{step}", utility=TimeUtility(1.0 + step))
        assert lengths.to_go(other)
        if step % 1000 == 0:
            most = max(most, sum(sizes(lengths).values()))
    assert lengths.to_go(plan).mean == pytest.approx(6.0, abs=1.0)
    assert most < 64 * 20 + 2 * 256


@endurance.steps
def test_the_mean_segment_is_that_of_the_last_ones_seen(steps: int) -> None:
    rng, length = random.Random(0), MeanSegmentLength(4.0)
    for step in range(steps):
        length.observe(rng.randint(2, 6) if step < steps - 5000 else rng.randint(10, 14))
    assert length.mean_tokens == pytest.approx(12.0, rel=0.05)


@endurance.steps
@pytest.mark.parametrize("begin_s", [0.0, YEAR_S])
def test_a_recent_mean_is_right_at_any_time_of_the_clock(begin_s: float, steps: int) -> None:
    rng, recent, now = np.random.default_rng(0), DecayingMean(20.0), begin_s
    for step, value in enumerate(rng.normal(0.6, 0.1, steps)):
        now += 0.005 + 0.03 * (step % 2)
        recent.saw(value if step % 1000 else float("nan"), now)
    assert recent.mean == pytest.approx(0.6, abs=0.03)
    assert recent.deviation == pytest.approx(0.1, rel=0.2)


def answering(policy: Deadline, *streams: StreamGeneration) -> None:
    policy.plan(0.0, streams, StepTime(), ROOMY)


def test_an_answer_that_waits_for_a_step_in_flight_has_not_ended() -> None:
    policy = Deadline()
    talk, other = talking("t", of_class=VOICE, tokens=3), talking("o", of_class=TEXT)
    for _ in range(100):
        answering(policy, talk, other)
        answering(policy, other)  # the first one's token is on its way
    assert not sizes(policy.streams.lengths)["AnswerLengths._order"], "nothing was learned"
    talk.state = State.ENDED
    answering(policy, other)
    answering(policy, other)
    learned = policy.streams.lengths.to_go(
        (talk.request.slo, talk.request.weight), 0, 99, 0.5, enough=1
    )
    assert learned == 3


def test_what_has_ended_is_not_kept_without_requests() -> None:
    policy = Deadline()
    talk = talking("t", of_class=VOICE, tokens=3)
    answering(policy, talk)
    talk.state = State.ENDED
    answering(policy)
    assert not sizes(policy.streams)["Streams._states"]


@endurance.steps
def test_a_request_that_never_ends_falls_no_further_than_its_time_is_long(steps: int) -> None:
    policy, now = FastServe(), 0.0
    one = talking("t")
    for _ in range(steps):
        assert policy.plan(now, [one], StepTime(), ROOMY).keys == {"t"}
        now += 0.02
    assert sum(sizes(policy).values()) < 10
