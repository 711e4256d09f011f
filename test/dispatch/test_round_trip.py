"""The time of a message there and back."""

from __future__ import annotations

import pytest

from timely_llm.dispatch.round_trip import NEWEST, PATIENCE_S, PERIOD_S, RoundTrip


def test_answers_bring_the_time_nearer_to_the_truth() -> None:
    trip, now = RoundTrip(0.002), 100.0
    for _ in range(60):
        assert trip.begins(now)
        trip.answered(now + 0.05)
        now += PERIOD_S
    assert trip.seconds == pytest.approx(0.05, rel=1e-3)


def test_one_message_is_on_its_way_at_a_time() -> None:
    trip = RoundTrip(0.002)
    assert trip.begins(100.0)
    assert not any(trip.begins(100.0 + second) for second in range(1, int(PATIENCE_S)))
    assert trip.begins(100.0 + PATIENCE_S), "the answer got lost"


def test_an_answer_counts_once() -> None:
    trip = RoundTrip(0.0)
    trip.begins(100.0)
    trip.answered(101.0)
    trip.answered(150.0)
    assert trip.seconds == NEWEST
