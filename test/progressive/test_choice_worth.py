"""The way with the largest expected worth."""

from __future__ import annotations

from timely_llm.progressive.choice import KindLengths, Way, best_way

CLOUD = Way("cloud", 1.0, lambda tokens: 0.1 * tokens, lambda tokens: tokens)
SKETCH = Way("sketch", 0.9, lambda tokens: 5.0 + 0.04 * tokens, lambda tokens: 0.4 * tokens)
EDGE = Way("edge", 0.6, lambda tokens: 0.02 * tokens, lambda tokens: 0.0)
WAYS = (CLOUD, SKETCH, EDGE)


def in_100_s(seconds: float) -> float:
    return 1.0 - seconds / 100.0


def test_short_answers_come_from_the_cloud_and_long_ones_from_sketches() -> None:
    assert best_way(WAYS, [50.0], in_100_s, 0.0) is CLOUD  # .95, .837, .594
    assert best_way(WAYS, [500.0], in_100_s, 0.0) is SKETCH  # .5, .675, .54


def test_a_price_of_the_clouds_tokens_moves_answers_to_the_edge() -> None:
    assert best_way(WAYS, [50.0], in_100_s, 0.02) is EDGE  # -.05, .437, .594
    assert best_way(WAYS, [500.0], in_100_s, 0.001) is EDGE  # 0, .475, .54


def test_the_mean_worth_counts_not_the_worth_of_the_mean() -> None:
    def patient(seconds: float) -> float:
        return 1.0 if seconds <= 20.0 else 0.0

    # Of two in time one is worth 1: the mean of 125 tokens would be in time by the cloud.
    assert best_way((CLOUD, SKETCH), [50.0, 50.0, 50.0, 350.0], patient, 0.0) is SKETCH
    assert best_way((CLOUD, SKETCH), [125.0], patient, 0.0) is CLOUD


def test_lengths_are_learned_by_kind() -> None:
    lengths = KindLengths()
    assert lengths.known("math") == [500.0]
    lengths.learn("math", 100.0)
    assert lengths.known("writing") == [100.0]
    lengths.learn("writing", 700.0)
    assert (lengths.mean("math"), lengths.mean("writing")) == (100.0, 700.0)


def test_old_lengths_are_forgotten() -> None:
    lengths = KindLengths()
    for tokens in (*[1.0] * 100, *[2.0] * 64):
        lengths.learn("a", tokens)
    assert lengths.mean("a") == 2.0
