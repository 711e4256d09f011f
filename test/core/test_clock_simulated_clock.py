"""A simulator's clock as it is heard."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from timely_llm.core.clock import LEAP_S, QUIET_S, SAME, STILL, WINDOW_S, SimulatedClock

factors = st.sampled_from([0.02, 0.3, 1.0, 3.0, 40.0])
periods = st.sampled_from([0.001, 0.02, 0.1, 0.25, 1.0])


class World:
    """A simulator that says what time it is."""

    def __init__(self, now: float = 100.0, shows_s: float = 7.0) -> None:
        self.now, self.shows_s = now, shows_s
        self.clock = SimulatedClock(now=now)
        self.clock.update(shows_s, now)

    def run(self, seconds: float, factor: float, period_s: float = 0.02) -> None:
        """Let the wall's seconds pass; the clock speaks once a period."""
        for _ in range(round(seconds / period_s)):
            self.now += period_s
            self.shows_s += factor * period_s
            self.clock.update(self.shows_s, self.now)

    def pause(self, seconds: float) -> None:
        """Let the wall's seconds pass in silence."""
        self.now += seconds

    def left_s(self, robot_s: float) -> float:
        """Return the wall's seconds until robots' time is `seconds` further."""
        time = self.clock.time(self.now)
        return time.to_loop(time.to_robot(self.now) + robot_s) - self.now


@given(factors, periods)
def test_what_is_due_in_robots_seconds_is_due_when_the_simulator_gets_there(
    factor: float, period_s: float
) -> None:
    world = World()
    world.run(5 * max(WINDOW_S, period_s), factor, period_s)
    assert world.clock.rate(world.now) == pytest.approx(factor, rel=1e-3)
    assert world.left_s(6.0) == pytest.approx(6.0 / factor, rel=1e-2)


@given(factors, factors)
def test_a_change_of_speed_is_known_after_a_window(before: float, after: float) -> None:
    world = World()
    world.run(2 * WINDOW_S, before)
    world.run(1.1 * WINDOW_S, after)
    assert world.clock.rate(world.now) == pytest.approx(after, rel=1e-2)


@given(factors, st.floats(1.0, 1000.0))
def test_a_clock_that_falls_silent_stands_still_and_then_goes_on(
    factor: float, silent_s: float
) -> None:
    world = World()
    world.run(2 * WINDOW_S, factor)
    stood_at_s = world.clock.robot_s(world.now)
    world.pause(silent_s)
    assert world.clock.time(world.now).rate == STILL
    assert world.clock.rate(world.now) == 0.0
    assert world.left_s(0.1) > 1000.0
    world.run(0.2, factor)
    assert world.clock.rate(world.now) == pytest.approx(factor, rel=1e-3)
    assert world.clock.robot_s(world.now) - stood_at_s == pytest.approx(0.2 * factor, rel=1e-3)


def test_a_clock_that_says_the_same_again_and_again_stands_still() -> None:
    world = World()
    world.run(2 * WINDOW_S, 1.0)
    world.run(2 * QUIET_S, 0.0)
    assert world.clock.rate(world.now) == 0.0


@given(st.floats(0.001, 1e9), st.booleans())
def test_a_clock_that_is_set_takes_no_time_from_any_robot(leap_s: float, back: bool) -> None:
    world = World()
    world.run(2 * WINDOW_S, 2.0)
    before_s = world.clock.robot_s(world.now)
    world.shows_s += -leap_s if back else LEAP_S + leap_s
    world.clock.update(world.shows_s, world.now)
    assert world.clock.jumps == 1
    assert world.clock.robot_s(world.now) == pytest.approx(before_s)
    world.run(WINDOW_S, 2.0)
    assert world.clock.robot_s(world.now) == pytest.approx(before_s + 2.0 * WINDOW_S)
    assert world.left_s(4.0) == pytest.approx(2.0, rel=1e-3)


words = st.lists(st.tuples(st.floats(0.0, 3.0), st.floats(-100.0, 100.0)), min_size=1, max_size=40)


@given(words)
def test_whatever_it_says_robots_seconds_never_go_back_and_pass_at_a_finite_rate(
    said: list[tuple[float, float]],
) -> None:
    world, told_s = World(), 0.0
    for passed_s, shows_s in said:
        world.now += passed_s
        world.clock.update(shows_s, world.now)
        time, robot_s = world.clock.time(world.now), world.clock.robot_s(world.now)
        assert robot_s >= told_s
        assert STILL <= time.rate < 1e4
        told_s = robot_s


def test_before_it_is_heard_twice_it_stands_still() -> None:
    clock = SimulatedClock(now=50.0)
    assert clock.time(60.0).rate == STILL
    assert clock.unheard_s(60.0) == 10.0
    clock.update(3.0, 60.0)
    assert (clock.rate(60.0), clock.unheard_s(60.0)) == (0.0, 0.0)
    clock.update(3.1, 60.1)
    assert clock.rate(60.1) == pytest.approx(1.0)


def test_a_clock_that_speaks_a_thousand_times_a_second_is_remembered_in_a_few_words() -> None:
    world = World()
    world.run(3.0, 0.5, 0.001)
    assert len(world.clock._words) < 200
    assert world.clock.rate(world.now) == pytest.approx(0.5, rel=1e-3)


def test_without_a_simulator_robots_live_on_the_wall() -> None:
    clock = SimulatedClock(simulated=False)
    clock.update(3.0, 60.0)
    assert clock.time(60.0) is SAME
    assert (clock.robot_s(60.0), clock.rate(60.0), clock.unheard_s(60.0)) == (60.0, 1.0, 0.0)


def test_to_enter_a_simulation_and_to_leave_it_takes_no_time() -> None:
    clock = SimulatedClock(simulated=False)
    clock.switch(True, 40.0)
    assert clock.robot_s(45.0) == 40.0
    clock.update(1.0, 45.0)
    for step in range(1, 101):
        clock.update(1.0 + 0.04 * step, 45.0 + 0.02 * step)
    clock.switch(False, 47.0)
    assert clock.robot_s(48.0) == pytest.approx(45.0)
    assert clock.time(48.0).rate == 1.0
