"""After an hour everything is as it was in the first ten minutes."""

import math

import pytest

from test.experiments.hours import HOUR_S, PART_S, Hour, an_hour
from timely_llm.policies.registry import POLICIES, make_policy

LEARNED_S = 60.0
LEARNS = ("AnswerLengths.", "SegmentLengths._order", "SegmentLengths._sorted", "Stats._",
          "ExecutionTimes._errors", "VirtualTokens._served")  # fmt: skip
"""Windows over what was last seen: they fill up, each of 256 values."""
CLASSES = 8
"""Kinds of requests that the hour has, at most, for each of these windows."""

EXTENDED = ("deadline", "timely+slice")


def check_predictions(hour: Hour) -> None:
    wrong = [share for at_s, share in hour.wrong if at_s > LEARNED_S]
    assert len(wrong) > 30_000
    assert max(wrong) < 0.1


def check_deadlines(hour: Hour) -> None:
    first, last = hour.in_time(0.0, PART_S), hour.in_time(HOUR_S - PART_S, HOUR_S)
    both = sum(first) + sum(last)
    share = both / (len(first) + len(last))
    chance = math.sqrt(share * (1.0 - share) * (1.0 / len(first) + 1.0 / len(last)))
    assert abs(sum(first) / len(first) - sum(last) / len(last)) <= 3.0 * chance


def check_memory(hour: Hour) -> None:
    early, late = hour.held
    for place, held in late.items():
        if place.startswith(LEARNS):
            assert held <= 256 * CLASSES, place
        else:
            assert held <= early[place] + 16, place


@pytest.mark.parametrize(
    "policy",
    [
        pytest.param(
            name,
            marks=pytest.mark.extended
            if name in EXTENDED
            else [pytest.mark.long, pytest.mark.timeout(3600)],
        )
        for name in POLICIES
    ],
)
def test_an_hour_of_robots_and_people_with_step_times_that_are_learned(policy: str) -> None:
    hour = an_hour(make_policy(policy))
    assert len(hour.run.conversations) > 1000 and len(hour.run.outcomes) > 300
    assert all(outcome.finished for outcome in hour.run.outcomes)
    check_predictions(hour)
    check_deadlines(hour)
    check_memory(hour)
    if policy in EXTENDED:
        last = hour.in_time(HOUR_S - PART_S, HOUR_S)
        assert sum(last) > 0.98 * len(last)
