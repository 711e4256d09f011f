"""Robots in a simulator that is slower or faster than the wall, stands still, or is reset."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from diagnostic_msgs.msg import DiagnosticArray
from std_msgs.msg import Float64

from test.system.conftest import ROOT, Process, Start
from test.system.ros_client import Client
from timely_llm import msg
from timely_llm.core.request import ErrorCode
from timely_llm.ros.client.plan import Execution, PlanClient, PlanTask, Progress
from timely_llm.skills.skill_set import load_skill_set

WALKER = Path(__file__).with_name("walker.yaml")
SKILLS = load_skill_set(WALKER)  # to read it takes time that a plan has not
DRONE = ROOT / "config/skill_sets/drone.yaml"
WAIT_S = 60.0
SIMULATED_S = 100_000
"""Longer than any simulation here, and shorter than the wall clock's time since 1970."""
LEAD_S = 0.6
ANSWER_S = 1.0


class World(Client):
    """Sets the simulator's pace and watches the server."""

    def __init__(self, domain: int, server: Process) -> None:
        super().__init__(domain)
        self.server = server
        self.clock = ""
        self._factor = self.node.create_publisher(Float64, "/factor", 10)
        self.said: list[msg.ExecutionReport] = []
        self.node.create_subscription(
            msg.ExecutionReport, "plan_server/execution_reports", self.said.append, 100
        )
        self.node.create_subscription(DiagnosticArray, "/diagnostics", self._on_health, 10)

    def _on_health(self, array: DiagnosticArray) -> None:
        for status in array.status:
            self.clock = {pair.key: pair.value for pair in status.values}["robots' clock"]

    def set_pace(self, factor: float) -> None:
        """Set the simulator's pace."""
        self.until(lambda: self._factor.get_subscription_count() > 0)
        self._factor.publish(Float64(data=factor))

    def run_at(self, factor: float) -> None:
        """Set the simulator's pace, and wait until the server knows it."""
        self.set_pace(factor)

        def known() -> bool:
            if not factor:
                return self.clock.endswith("stands still")
            words = self.clock.split(" at ")
            return len(words) == 2 and 0.7 < float(words[1].split()[0]) / abs(factor) < 1.4

        self.until(known)

    def tokens(self) -> int:
        """Return the tokens that the server has generated until now."""
        seen = len(self.stats)
        self.until(lambda: len(self.stats) > seen + 1)
        tokens: int = self.stats[-1].generated_tokens
        return tokens


@pytest.fixture(scope="module")
def world(start: Start, domain: int) -> Iterator[World]:
    server = start(
        "plan_server", engine="simulated", policy="timely+slice", skill_sets=f"[{WALKER},{DRONE}]",
        lead_s=LEAD_S, answer_timeout_s=ANSWER_S, client_timeout_s=3.0, use_sim_time=True,
        stats_period_s=0.1,
    )  # fmt: skip
    start("test/system/simulator.py")
    made = World(domain, server)
    made.wait_for_action()
    yield made
    made.close()
    server.stop()
    assert server.popen.returncode == 0
    assert "Traceback" not in server.output


@pytest.fixture
def robot(world: World, domain: int) -> Iterator[PlanClient]:
    with PlanClient("walker", "walker", domain=domain, find_s=WAIT_S, use_sim_time=True) as made:
        yield made


class Walk:
    """A robot's skills, and the segments that had come meanwhile."""

    def __init__(self, task: PlanTask) -> None:
        self._task = task
        self.gaps: list[int] = []
        self.early: list[int] = []

    def w(self, seconds: float, *, execution: Execution) -> None:
        """Walk; half the way the next segment should not be there yet."""
        if not execution.wait(seconds / 2):
            if self._is_there(execution.index + 1):
                self.early.append(execution.index)
            execution.wait(seconds / 2)

    def v(self, seconds: float, *, execution: Execution) -> str:
        """Walk and look."""
        execution.wait(seconds)
        return "a cat"

    def note(self, progress: Progress) -> None:
        """Look whether the robot has something to do."""
        more = progress.kind == "finished" and "->" not in progress.text
        if more and not self._is_there(progress.index + 1):
            self.gaps.append(progress.index)

    def _is_there(self, index: int) -> bool:
        return self._task.known(0, index) is not None


def test_before_the_simulator_runs_the_server_says_so_and_serves(
    world: World, robot: PlanClient
) -> None:
    task = robot.submit("evenly")
    first = next(task.segments(WAIT_S))
    assert first.text == "w(1.2);"
    world.until(lambda: "/clock was not heard for 5 s" in world.server.output)
    world.until(lambda: world.clock == "/clock, not heard yet")
    assert task.cancel(WAIT_S)


@pytest.mark.extended
@pytest.mark.parametrize(("factor", "asked"), [(0.3, "slowly"), (1.0, "evenly"), (3.0, "quickly")])
def test_the_next_segment_is_there_when_the_robot_needs_it_and_not_long_before(
    world: World, robot: PlanClient, factor: float, asked: str
) -> None:
    world.run_at(factor)
    task = robot.submit(asked)
    walk = Walk(task)
    done = task.execute(walk, on_progress=walk.note, timeout_s=WAIT_S, skill_set=SKILLS)
    assert done.result.error_code is ErrorCode.NONE
    walked = [call for call in done.calls if call.call.name == "w"]
    # Durations are the simulator's: the wall's would be three times as long or short.
    for call in walked:
        assert 0.9 * call.call.predicted_s < call.duration_s < 1.8 * call.call.predicted_s
    assert len(walked) > 1
    assert len(walk.gaps) <= 1
    if factor < 1:
        assert walk.early == []
    world.until(lambda: any(report.request_id == task.request_id for report in world.said))
    of_this = [segment for segment in world.segments if segment.request_id == task.request_id]
    assert all(
        0 <= message.stamp.sec < SIMULATED_S for message in (*of_this, *world.said, world.stats[-1])
    )


def test_while_the_clock_stands_still_nothing_expires_and_then_the_plan_goes_on(
    world: World, robot: PlanClient
) -> None:
    world.run_at(1.0)
    looking, seen = threading.Event(), threading.Event()

    class Looking(Walk):
        def v(self, seconds: float, *, execution: Execution) -> str:
            looking.set()
            assert seen.wait(WAIT_S)
            return "a cat"

    task = robot.submit("look")
    with ThreadPoolExecutor(1) as pool:
        try:
            executing = pool.submit(task.execute, Looking(task), timeout_s=WAIT_S, skill_set=SKILLS)
            world.until(looking.is_set)
            world.run_at(0.0)
            # A request for a plan meanwhile gets its plan, and may drop it.
            other = robot.submit("evenly", request_id="other")
            assert next(other.segments(WAIT_S)).text == "w(1.2);"
            world.until_listed({task.request_id: "blocked", "other": "suspended"})
            tokens = world.tokens()
            end_s = time.monotonic() + 2.5 * ANSWER_S
            world.until(lambda: time.monotonic() > end_s)
            world.until_listed({task.request_id: "blocked", "other": "suspended"})
            assert world.tokens() == tokens
            assert other.cancel(WAIT_S)
        finally:
            seen.set()
        world.set_pace(-1.0)  # the simulator is reset, too
        executed = executing.result(WAIT_S)
    assert executed.result.error_code is ErrorCode.NONE
    assert executed.plan == "w(1);v(1);w(1);->True;"
    world.until(lambda: "/clock was set by -" in world.server.output)
    world.until(lambda: "robots' time goes on" in world.server.output)


def test_the_fleets_robots_live_in_the_simulation(
    world: World, start: Start, tmp_path: Path
) -> None:
    world.run_at(6.0)
    log = tmp_path / "robots.jsonl"
    fleet = start(
        "robot_fleet", robots=2, duration_s=5.0, events_per_s=2.0, seed=1, log=log,
        use_sim_time=True,
    )  # fmt: skip
    world.until(lambda: fleet.popen.poll() is not None)
    assert fleet.popen.returncode == 0, fleet.output
    events = [json.loads(line) for line in log.read_text().splitlines()]
    starts = {(e["id"], e["epoch"], e["index"]): e["t"] for e in events if e["event"] == "start"}
    simulated_s = sum(e["s"] for e in events if e["event"] == "call")
    wall_s = sum(
        e["t"] - starts[e["id"], e["epoch"], e["index"]] for e in events if e["event"] == "finish"
    )
    assert simulated_s > 2.0 * wall_s > 0.0
    # A process that lives for a few seconds may be found too late to be heard.
    stamps = [report.stamp.sec for report in world.said if report.agent.startswith("robot_")]
    assert max(stamps, default=0) < SIMULATED_S
