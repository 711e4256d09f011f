"""The loop on its own clock, with robots' time at another rate, or standing still."""

from __future__ import annotations

from typing import Any

import pytest

from test.serving.scripted import ARM, Scene, request
from timely_llm.core.clock import SimulatedClock, VirtualClock
from timely_llm.core.generation import State
from timely_llm.core.request import ChatMessage, ErrorCode, ReportState, StreamRequest
from timely_llm.core.time_utility import TimeUtility
from timely_llm.policies.contract import Policy
from timely_llm.policies.registry import POLICIES, make_policy
from timely_llm.policies.timely import Timely
from timely_llm.serving.limits import Timeouts

WALK = "mf(500);mf(500);mf(500);mf(500);->True;"
LEG_S = 0.0072 * 500 + 1.8144
REACH = "move_to('a');move_to('b');move_to('c');->True;"
ASK = "move_to('a');look();...->True;"
SAY = "say('yes');->True;"
LEAD_S = 0.5
TICK_S = 0.02
FACTORS = [0.3, 1.0, 3.0]


class Simulator(VirtualClock):
    """The wall, with a simulator on it that says every 20 ms what time it is."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor
        self.shows_s = 1.0
        self.robots = SimulatedClock()
        self.robots.update(self.shows_s, 0.0)
        self.advance(2.0)

    def advance(self, seconds: float) -> None:
        end_s = self.now() + max(seconds, 1e-6)  # a rounding error is no step
        while (left_s := end_s - self.now()) > 1e-9:
            passed_s = min(left_s, TICK_S)
            super().advance(passed_s)
            if self.factor:
                self.shows_s += self.factor * passed_s
                self.robots.update(self.shows_s, self.now())


class Simulated(Scene):
    """A scene with robots in a simulator."""

    def __init__(
        self, plans: dict[str, str], factor: float, policy: Policy | None = None, **values: Any
    ) -> None:
        self.simulator = Simulator(factor)
        super().__init__(
            plans, policy or Timely(lead_s=LEAD_S), clock=self.simulator,
            robot_clock=self.simulator.robots, **values,
        )  # fmt: skip

    def wait(self, seconds: float) -> None:
        """Turn while the wall's seconds pass."""
        end_s = self.clock.now() + seconds
        while self.clock.now() < end_s:
            turn = self.loop.turn()
            if not turn.stepped:
                left_s = end_s - self.clock.now()
                assert turn.wake_s <= self.clock.now() + 0.1 or not self.loop.generations
                self.clock.advance(min(max(turn.wake_s - self.clock.now(), 1e-3), left_s))


@pytest.mark.parametrize("factor", FACTORS)
def test_a_suspended_plan_goes_on_lead_s_before_its_robot_is_idle(factor: float) -> None:
    scene = Simulated({"r": WALK}, factor)
    scene.loop.admit(request("r"))
    scene.until_segments(1)
    begun_s, shows_s = scene.clock.now(), scene.simulator.shows_s
    steps = scene.loop.stats.steps
    scene.wait(0.9 * (LEG_S / factor - LEAD_S))
    assert scene.loop.stats.steps == steps
    assert scene.plans[0].state is State.SUSPENDED
    scene.until_segments(2)
    # The lead is the engine's time, so the wall's; the walk is the robot's.
    assert scene.clock.now() - begun_s == pytest.approx(LEG_S / factor - LEAD_S, abs=0.3)
    assert scene.simulator.shows_s - shows_s < LEG_S


@pytest.mark.parametrize("factor", FACTORS)
def test_times_in_results_are_the_robots(factor: float) -> None:
    scene = Simulated({"r": WALK}, factor)
    arrival_s = scene.clock.now()
    utility = TimeUtility(1.0, -1.0, 0.0)
    scene.loop.admit(request("r", utility))
    scene.until_segments(1)
    response_s = factor * (scene.clock.now() - arrival_s)
    scene.run(20_000)
    result = scene.sink.results["r"]
    assert result.response_s == pytest.approx(response_s, rel=0.02)
    assert result.utility == pytest.approx(utility.value(response_s), rel=0.02)
    assert result.waiting_s == pytest.approx(response_s, rel=0.02)


@pytest.mark.parametrize("name", sorted(POLICIES))
def test_while_the_simulator_stands_still_nothing_expires_and_others_are_served(name: str) -> None:
    timeouts = Timeouts(client_timeout_s=1.0, answer_timeout_s=1.0, queue_timeout_s=1.0)
    policy = Timely(lead_s=LEAD_S) if name == "timely" else make_policy(name)
    plans = {"r": REACH, "a": ASK, "n": SAY}
    scene = Simulated(plans, 1.0, policy, timeouts=timeouts, skill_set=ARM)
    for key in "ra":
        scene.loop.admit(request(key, skill_set="arm", closed_loop=True))
        scene.report(key, ReportState.ALIVE)
    scene.wait(0.5)
    scene.simulator.factor = 0.0
    scene.wait(1.0)
    scene.loop.admit(request("n", skill_set="arm"))
    scene.loop.admit(StreamRequest("s", "ann", (ChatMessage("user", "Why?"),)))
    scene.wait(5.0)
    assert scene.sink.texts("n")[0].startswith("say('yes');")
    assert scene.sink.answers["s"].error_code is ErrorCode.NONE
    assert scene.sink.results.keys() <= {"n"}
    steps = scene.loop.stats.steps
    scene.wait(60.0)
    assert scene.loop.stats.steps == steps
    assert {plan.key for plan in scene.plans} >= {"r", "a"}
    assert scene.loop.cancel("a", ErrorCode.CANCELED, "")
    scene.simulator.factor = 1.0
    scene.wait(0.1)
    assert "r" in {plan.key for plan in scene.plans}
    # Robots that sent nothing since are given up, as long after it went on as they would have been.
    scene.wait(3.0)
    assert scene.sink.results["r"].error_code is ErrorCode.CLIENT_SILENT


def test_a_value_is_waited_for_in_robots_seconds() -> None:
    timeouts = Timeouts(client_timeout_s=1e6, answer_timeout_s=6.0)
    scene = Simulated({"a": ASK}, 3.0, timeouts=timeouts, skill_set=ARM)
    scene.loop.admit(request("a", skill_set="arm"))
    scene.until_segments(2)
    until_idle_s = scene.plans[0].due_s - scene.clock.now()
    scene.wait(until_idle_s + 1.7)
    assert not scene.sink.results
    scene.wait(0.6)
    assert scene.sink.results["a"].error_code is ErrorCode.NO_ANSWER


def test_a_client_has_the_seconds_of_the_wall_to_say_a_word_however_fast_its_robot_is() -> None:
    timeouts = Timeouts(client_timeout_s=3.0, answer_timeout_s=1e6)
    scene = Simulated({"r": WALK}, 30.0, timeouts=timeouts)
    scene.loop.admit(request("r", closed_loop=True))
    scene.report("r", ReportState.ALIVE)
    scene.wait(2.9)
    assert not scene.sink.results
    scene.wait(0.3)
    assert scene.sink.results["r"].error_code is ErrorCode.CLIENT_SILENT


def test_a_reset_and_a_change_of_speed_move_what_is_due() -> None:
    scene = Simulated({"r": WALK}, 1.0)
    scene.loop.admit(request("r"))
    scene.until_segments(1)
    scene.wait(1.0)
    scene.simulator.shows_s = 0.0
    scene.simulator.factor = 0.3
    scene.wait(1.2)
    left_s = (scene.plans[0].due_s - scene.clock.now()) * 0.3
    assert left_s == pytest.approx(LEG_S - 1.0 - 0.3 * 1.2, abs=0.2)
    assert scene.simulator.robots.jumps == 1


def test_a_report_says_when_the_robot_is_idle_in_its_own_seconds() -> None:
    scene = Simulated({"r": WALK}, 0.3)
    scene.loop.admit(request("r"))
    scene.until_segments(1)
    scene.report("r", ReportState.STARTED, 0)
    plan = scene.plans[0]
    assert plan.due_s - scene.clock.now() == pytest.approx(LEG_S / 0.3, rel=0.01)
    scene.wait(1.0)
    scene.report("r", ReportState.FINISHED, 0, duration_s=LEG_S)
    assert plan.due_s == pytest.approx(scene.clock.now())
    scene.until_segments(2)


def test_a_simulator_that_never_ran_lets_reports_decide() -> None:
    scene = Simulated({"r": WALK}, 1.0)
    scene.simulator.robots.switch(False, scene.clock.now())
    scene.simulator.robots.switch(True, scene.clock.now())
    scene.simulator.factor = 0.0
    scene.loop.admit(request("r", closed_loop=True))
    scene.until_segments(1)
    for index in range(4):
        scene.report("r", ReportState.FINISHED, index, duration_s=1.0)
        scene.until_segments(index + 2)
    assert "".join(scene.sink.texts("r")) == WALK


@pytest.mark.parametrize("factor", FACTORS)
def test_a_given_plan_goes_on_lead_s_before_its_robot_is_idle(factor: float) -> None:
    scene = Simulated({}, factor)
    scene.loop.admit(request("g", given_plan=WALK))
    scene.until_segments(1)
    begun_s = scene.clock.now()
    scene.until_segments(2)
    assert scene.clock.now() - begun_s == pytest.approx(LEG_S / factor - LEAD_S, abs=0.05)


def test_a_given_plan_waits_while_the_simulator_stands_still() -> None:
    scene = Simulated({}, 1.0)
    scene.loop.admit(request("g", given_plan=WALK))
    scene.until_segments(1)
    scene.simulator.factor = 0.0
    scene.wait(300.0)
    assert len(scene.sink.segments) == 1
    scene.simulator.factor = 1.0
    scene.until_segments(2)
