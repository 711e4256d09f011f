"""The length of segments is learned from those that are made."""

import math

import pytest

from test.policies.builders import generation
from test.serving.scripted import Scene, request
from timely_llm.core.generation import State
from timely_llm.core.segment import Segment
from timely_llm.policies.timely import MeanSegmentLength, Timely


def test_what_is_believed_at_first_counts_for_some_segments() -> None:
    length = MeanSegmentLength(4.0, weight=20.0)
    assert length.mean_tokens == 4.0
    length.observe(tokens=40, segments=5)
    assert length.mean_tokens == pytest.approx((20 * 4.0 + 40) / 25)


def test_an_infinite_weight_learns_nothing() -> None:
    length = MeanSegmentLength(4.0, weight=math.inf)
    length.observe(tokens=900)
    assert length.mean_tokens == 4.0


def test_it_follows_a_model_with_changing_segments() -> None:
    length = MeanSegmentLength(4.0)
    for _ in range(100_000):
        length.observe(4)
    for _ in range(2000):
        length.observe(12)
    assert length.mean_tokens == pytest.approx(12, rel=0.05)


def test_it_counts_what_a_batch_made_since_it_was_watched() -> None:
    length, made = MeanSegmentLength(4.0, weight=1.0), generation("g")
    length.watch([made])
    made.token_ids += [1] * 7
    made.segment_tokens = 7
    length.watch([made])
    assert length.mean_tokens == 4.0
    made.token_ids += [1, 1]  # the first ends the segment, the second begins the next
    made.segment_tokens = 1
    made.segments.append(Segment("g", "a", 0, "mf(50);"))
    length.watch([made])
    assert length.mean_tokens == pytest.approx((4 + 8) / 2)


def test_a_plans_end_belongs_to_its_last_segment() -> None:
    length, made = MeanSegmentLength(4.0, weight=1.0), generation("g")
    length.watch([made])
    made.token_ids += [1] * 6
    made.segment_tokens = 6  # without a mark at its end, a segment is over with the text
    made.segments.append(Segment("g", "a", 0, "mf(50)", final=True))
    made.state = State.ENDED
    length.watch([])
    assert length.mean_tokens == pytest.approx((4 + 6) / 2)


def test_a_policy_learns_it_from_what_it_serves() -> None:
    plan = "mf(50);mf(60);mf(70);tc(90);->True;"
    policy = Timely(prior_segments=1.0)
    scene = Scene({f"r{i}": plan for i in range(30)}, policy)
    for i in range(30):
        scene.loop.admit(request(f"r{i}"))
    scene.run()
    tokens = scene.loop.stats.generated_tokens / scene.loop.stats.segments
    assert policy.segment_length.mean_tokens == pytest.approx(tokens, rel=0.1)
