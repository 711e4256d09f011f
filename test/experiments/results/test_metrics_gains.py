from __future__ import annotations

import math
from statistics import fmean

import pytest

from timely_llm.experiments.results.metrics import (
    MeasuredRow,
    definition,
    gains,
    interval,
    relative_definition,
    relative_gains,
)


def row(
    policy: str, seed: int, utility: float, waiting_s: float | None, load: int = 1
) -> MeasuredRow:
    return {"policy": policy, "load": load, "seed": seed, "utility_unclamped": utility,
            "waiting_s": waiting_s}  # fmt: skip


def test_a_policy_is_compared_with_another_in_the_same_setting_and_seed() -> None:
    rows = [
        row("fcfs", 0, -1.5, 2.0),
        row("fcfs", 1, -2.0, 4.0),
        row("timely", 0, 0.5, 0.5),
        row("timely", 1, 1.0, 1.0),
        row("timely", 0, 1.0, 1.0, load=2),
    ]
    found = gains(rows, ("load", "policy"), "fcfs")
    assert [one["utility_gain"] for one in found] == [0.0, 0.0, 2.0, 3.0, None]
    assert [one["waiting_s_vs_fcfs"] for one in found] == [1.0, 1.0, 0.25, 0.25, None]
    assert "utility_gain" not in rows[0], "what was given is left as it was"


def test_without_the_other_policy_nothing_is_known_of_gains() -> None:
    (found,) = gains([row("timely", 0, 1.0, None)], ("load", "policy"), "fcfs")
    assert found["utility_gain"] is None
    assert found["waiting_s"] is None


def test_the_columns_are_defined() -> None:
    assert "fcfs" in definition("fcfs")["utility_gain"]
    assert "with v of fcfs" in relative_definition("utility_unclamped", "fcfs")


def test_a_relative_gain_may_start_below_zero() -> None:
    rows = [
        row("fcfs", 0, -1.5, None),
        row("fcfs", 1, 0.5, None),  # mean -0.5
        row("timely", 0, 0.0, None),
        row("timely", 1, 2.0, None),  # mean 1
        row("timely", 0, 1.0, None, load=2),
    ]
    found = relative_gains(rows, ("load", "policy"), "utility_unclamped", "fcfs", "gain")
    assert [one["gain"] for one in found[:2]] == [0.0, 0.0]
    assert fmean(one["gain"] for one in found[2:4]) == pytest.approx(3.0)
    assert found[4]["gain"] is None, "there is no row of the other policy"
    assert "gain" not in rows[0]


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_the_parts_of_a_relative_gain_have_the_gain_of_means_as_their_mean(sign: float) -> None:
    theirs, mine = [2.0, 0.0, 4.0], [3.0, 0.5, 5.0]
    rows = [row("fcfs", seed, sign * value, None) for seed, value in enumerate(theirs)]
    rows += [row("timely", seed, sign * value, None) for seed, value in enumerate(mine)]
    found = relative_gains(rows, ("load", "policy"), "utility_unclamped", "fcfs", "gain")
    assert [one["gain"] for one in found[:3]] == [0.0, 0.0, 0.0]
    parts = [one["gain"] for one in found[3:]]
    assert fmean(parts) == pytest.approx(sign * (sum(mine) / sum(theirs) - 1.0))
    assert "gain" not in rows[0]


def test_a_relative_gain_of_seeds_that_all_have_it_is_sure() -> None:
    rows = [row("fcfs", seed, value, None) for seed, value in enumerate((1.0, 3.0, 8.0))]
    rows += [{**one, "policy": "timely", "utility_unclamped": 1.5 * one["utility_unclamped"]}
             for one in rows]  # fmt: skip
    found = relative_gains(rows, ("load", "policy"), "utility_unclamped", "fcfs", "gain")
    assert interval([one["gain"] for one in found[3:]]) == pytest.approx((0.5, 0.0))


def test_a_relative_gain_has_the_interval_of_a_ratio() -> None:
    theirs, mine = [1.0, 2.0, 3.0, 2.0], [2.0, 3.0, 4.0, 1.0]
    rows = [row("fcfs", seed, value, None) for seed, value in enumerate(theirs)]
    rows += [row("timely", seed, value, None) for seed, value in enumerate(mine)]
    found = relative_gains(rows, ("load", "policy"), "utility_unclamped", "fcfs", "gain")
    ratio, count = sum(mine) / sum(theirs), len(mine)
    rest = [(t - ratio * v) ** 2 for t, v in zip(mine, theirs, strict=True)]
    deviation = (sum(rest) / (count - 1) / count) ** 0.5 / fmean(theirs)
    assert interval([one["gain"] for one in found[4:]]) == pytest.approx(
        (ratio - 1.0, 3.182446 * deviation)
    )


def test_seeds_without_a_pair_and_gains_over_zero_are_unknown() -> None:
    rows = [
        row("fcfs", 0, 1.0, None),
        {**row("fcfs", 1, 0.0, None), "utility_unclamped": None},
        row("fcfs", 2, math.nan, None),
        row("timely", 0, 2.0, None),
        row("timely", 1, 9.0, None),
        row("timely", 2, 9.0, None),
        row("fcfs", 0, 0.0, None, load=2),
        row("timely", 0, 1.0, None, load=2),
        row("timely", 0, 1.0, None, load=3),
    ]
    found = relative_gains(rows, ("load", "policy"), "utility_unclamped", "fcfs", "gain")
    assert [one["gain"] for one in found] == [0.0, None, None, 1.0, None, None, None, None, None]
