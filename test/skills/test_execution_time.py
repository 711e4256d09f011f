"""Predictions follow what robots report."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from test import endurance
from test.skills.plans import DRONE
from timely_llm.conformance.policies.service import sizes
from timely_llm.core.segment import SkillCall
from timely_llm.skills.execution_time import LOW_AFTER, ExecutionTimes
from timely_llm.skills.minispec.checker import MiniSpecChecker

MOVE_S = 1.8144 + 0.0072 * 100
STEP_S = 1.5275


def call(times: ExecutionTimes, name: str, *arguments: int | str) -> SkillCall:
    return SkillCall(name, arguments, times.predict_s(name, arguments))


def test_at_first_it_is_what_the_skill_set_says() -> None:
    times = ExecutionTimes(DRONE)
    assert times.predict_s("mf", (100,)) == pytest.approx(MOVE_S)
    assert times.predict_s("s", ("cat",)) == pytest.approx(STEP_S)
    assert (times.error, times.bias) == (0.0, 0.0)


@pytest.mark.parametrize("slower", [0.6, 1.3, 2.5])
def test_predictions_improve_on_a_biased_robot(slower: float) -> None:
    rng, times = np.random.default_rng(1), ExecutionTimes(DRONE)
    errors = []
    for _ in range(60):
        cm = int(rng.integers(10, 501))
        move = call(times, "mf", cm)
        true_s = DRONE.skills["mf"].duration.predict_s((cm,)) * slower * rng.lognormal(0, 0.05)
        errors.append(abs(true_s - move.predicted_s) / true_s)
        times.observe([move], true_s)
    assert np.mean(errors[-20:]) < 0.06 < np.mean(errors[:3])
    assert times.error == pytest.approx(np.mean(errors))
    assert math.copysign(1, times.bias) == math.copysign(1, slower - 1)
    assert times.predict_s("mb", (100,)) == pytest.approx(MOVE_S)  # without any report
    plan = MiniSpecChecker(DRONE, times).feed("mf(100);")
    assert plan[0].predicted_s == pytest.approx(slower * MOVE_S, rel=0.06)


def test_a_robot_that_changes_is_followed() -> None:
    times = ExecutionTimes(DRONE)
    for slower in [2.0] * 100 + [1.0] * 100:
        times.observe([call(times, "mf", 100)], slower * MOVE_S)
    assert times.predict_s("mf", (100,)) == pytest.approx(MOVE_S, rel=0.02)


def test_one_mishap_changes_little() -> None:
    times = ExecutionTimes(DRONE)
    for _ in range(30):
        times.observe([call(times, "mf", 100)], MOVE_S)
    times.observe([call(times, "mf", 100)], 15 * MOVE_S)
    assert times.predict_s("mf", (100,)) == pytest.approx(MOVE_S, rel=0.05)


@pytest.mark.parametrize("seconds", [0.0, -1.0, math.nan, math.inf, 1e9, 1e-6, 21 * MOVE_S])
def test_what_no_robot_takes_is_ignored(seconds: float) -> None:
    times = ExecutionTimes(DRONE)
    times.observe([call(times, "mf", 100)], seconds)
    assert times.predict_s("mf", (100,)) == pytest.approx(MOVE_S)
    assert (times.error, times.bias) == (0.0, 0.0)


def test_instant_and_unknown_skills_teach_nothing() -> None:
    times = ExecutionTimes(DRONE)
    times.observe([call(times, "tp")], 0.01)
    times.observe([SkillCall("fly", (), 3.0)], 4.0)
    times.observe([], 4.0)
    assert times.predict_s("tp", ()) == 0.001
    assert times.error == 0.0


def test_only_segments_with_each_call_made_once_teach() -> None:
    times = ExecutionTimes(DRONE)
    for text in ("4{mf(100)}", "?s('cat')|s('dog'){"):
        checker = MiniSpecChecker(DRONE, times)
        pieces = checker.feed(text)
        for piece in pieces:
            times.observe(piece.calls, 4 * MOVE_S, piece.predicted_s)
    assert times.predict_s("mf", (100,)) == pytest.approx(MOVE_S)
    assert times.predict_s("s", ("cat",)) == STEP_S
    assert times.error == 0.0


def test_several_calls_share_their_time() -> None:
    times = ExecutionTimes(DRONE)
    for _ in range(60):
        calls = [call(times, "mf", 100), call(times, "g", "cat"), call(times, "tp")]
        times.observe(calls, 2 * (MOVE_S + 2.5))
    assert times.predict_s("mf", (100,)) == pytest.approx(2 * MOVE_S, rel=0.02)
    assert times.predict_s("g", ("cat",)) == pytest.approx(2 * 2.5, rel=0.02)
    assert times.predict_s("tp", ()) == 0.001


def test_a_search_is_predicted_by_the_shortest_that_were_seen() -> None:
    times, rng = ExecutionTimes(DRONE), np.random.default_rng(0)
    seen = [float(s) for s in rng.uniform(4.0, 12.0, LOW_AFTER - 1)]
    for seconds in seen:
        times.observe([call(times, "s", "cat")], seconds)
    assert times.predict_s("s", ("cat",)) == STEP_S  # too few to say that none is shorter
    for seconds in rng.uniform(4.0, 12.0, 200):
        times.observe([call(times, "s", "cat")], float(seconds))
    assert 4.0 <= times.predict_s("s", ("cat",)) <= 5.0


def test_a_quick_search_shortens_the_prediction_at_once() -> None:
    times = ExecutionTimes(DRONE)
    times.observe([call(times, "s", "cat")], 0.8)
    assert times.predict_s("s", ("cat",)) == 0.8
    times.observe([call(times, "s", "cat"), call(times, "mf", 100)], 0.5)
    assert times.predict_s("s", ("cat",)) == 0.8  # which of the two was quick is not known


anything = st.floats() | st.floats(0.01, 1000)


@settings(deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["mf", "s", "d"]), anything), max_size=60))
def test_whatever_is_reported_predictions_stay_sane(reports: list[tuple[str, float]]) -> None:
    times = ExecutionTimes(DRONE)
    arguments: dict[str, tuple[int | str, ...]] = {"mf": (100,), "s": ("cat",), "d": (5,)}
    for name, seconds in reports:
        times.observe([call(times, name, *arguments[name])], seconds)
        for each, given_ in arguments.items():
            written_s = DRONE.skills[each].duration.predict_s(given_)
            predicted_s = times.predict_s(each, given_)
            if each == "s":
                assert 0 < predicted_s <= 3600
            else:
                assert 0.19 * written_s <= predicted_s <= 5.01 * written_s
        assert math.isfinite(times.error)
        assert math.isfinite(times.bias)


@pytest.mark.slow
@endurance.steps
def test_predictions_stay_right_for_ever(steps: int) -> None:
    times, rng = ExecutionTimes(DRONE), random.Random(0)
    for slower in (1.3, 0.7, 2.0):
        for _ in range(steps // 3):
            move = call(times, "mf", 100)
            times.observe([move], slower * MOVE_S * rng.lognormvariate(0.0, 0.1))
            times.observe([call(times, "s", "cat")], rng.uniform(2.0, 20.0))
        assert times.predict_s("mf", (100,)) == pytest.approx(slower * MOVE_S, rel=0.1)
        assert 2.0 < times.predict_s("s", ("cat",)) < 4.0
    assert sum(sizes(times, leave_out=[DRONE, DRONE.skills]).values()) < 600


@pytest.mark.parametrize("times_as_long", [19.0, 0.06])
def test_a_bad_time_is_forgotten_as_soon_however_bad_it_was(times_as_long: float) -> None:
    times = ExecutionTimes(DRONE)
    for _ in range(300):  # each is just within what is believed
        move = call(times, "mf", 100)
        times.observe([move], times_as_long * move.predicted_s)
    assert times.predict_s("mf", (100,)) == pytest.approx(
        MOVE_S * (5.0 if times_as_long > 1.0 else 0.2)
    )
    for _ in range(80):
        times.observe([call(times, "mf", 100)], MOVE_S)
    assert times.predict_s("mf", (100,)) == pytest.approx(MOVE_S, rel=0.3)
