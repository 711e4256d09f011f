"""A server with a hung or dead engine ends its requests and itself with a sentence and status 1."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus

from test.alive import runs
from test.system.conftest import ROOT, Process, Start, ros_environment
from test.system.ros_client import Client
from test.system.test_engine_process import children
from timely_llm import msg
from timely_llm.core.request import ErrorCode
from timely_llm.ros.client.plan import PlanClient, ServerLost

pytestmark = [
    pytest.mark.faults,
    pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc"),
]

LIMIT_S = 60.0
HUNG = ("test/system/hung_server.py",)
QUICK = ["-p", "engine:=simulated", "-p", "step_timeout_s:=1.0", "-p", "stats_period_s:=0.1"]
HANGS = "plan_server: the engine hangs: a step or a call has taken"


class Watcher(Client):
    """Also hears results and diagnostics."""

    def __init__(self, domain: int) -> None:
        super().__init__(domain)
        self.results: list[msg.PlanResult] = []
        self.health: list[DiagnosticStatus] = []
        self.node.create_subscription(
            msg.PlanResult, "plan_server/results", self.results.append, 256
        )
        self.node.create_subscription(DiagnosticArray, "/diagnostics", self._on_health, 10)

    def _on_health(self, array: DiagnosticArray) -> None:
        self.health += array.status


def begin(start: Start, how: str, *arguments: str) -> Process:
    return start(*HUNG, how, "--ros-args", *QUICK, *arguments)


def ended(*pids: int, limit_s: float = 20.0) -> bool:
    """Whether processes end within a time."""
    end_s = time.monotonic() + limit_s
    while left := [pid for pid in pids if runs(pid)]:
        if time.monotonic() > end_s:
            for pid in left:  # nothing is left by a test
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            return False
        time.sleep(0.02)
    return True


def until(condition: Callable[[], bool]) -> None:
    """Wait until a condition holds; fail if it does not in time."""
    end_s = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < end_s
        time.sleep(0.02)


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("sleeps", HANGS),
        ("waits", HANGS),
        ("spins", HANGS),
        ("dies", "plan_server: the engine's thread has ended: SystemExit: asked to"),
    ],
)
def test_all_requests_get_results_before_the_server_ends(
    start: Start, domain: int, how: str, words: str
) -> None:
    server = begin(start, how)
    client = Watcher(domain)
    client.wait_for_server()  # also makes the first step
    goal = client.send(client.goal("stuck")).get_result_async()
    client.requests.publish(client.request("stuck-too"))
    client.until(goal.done)
    result = goal.result().result
    assert result.error_code == ErrorCode.ENGINE_FAILED
    assert words.removeprefix("plan_server: ") in result.error_msg
    client.until(
        lambda: any(
            status.level == DiagnosticStatus.ERROR and result.error_msg == status.message
            for status in client.health
        )
    )
    assert server.wait(LIMIT_S) == 1
    told = [r.request_id for r in client.results if r.error_code == ErrorCode.ENGINE_FAILED]
    client.close()
    assert sorted(told)[:1] == ["stuck"] and len(set(told)) == len(told)
    assert server.output.splitlines()[-1].startswith(words)


def test_an_engine_that_always_fails_ends_the_server(start: Start, domain: int) -> None:
    server = begin(start, "fails")
    client = Watcher(domain)
    client.wait_for_server()
    for number in range(200):
        if server.popen.poll() is not None:
            break
        client.requests.publish(client.request(f"stuck-{number}"))
        end_s = time.monotonic() + 0.2
        client.until(lambda end_s=end_s: time.monotonic() > end_s)  # type: ignore[misc]
    assert server.wait(LIMIT_S) == 1
    client.close()
    assert server.output.splitlines()[-1] == (
        "plan_server: the engine failed 10 times in a row: RuntimeError: CUDA error: an illegal"
        " memory access was encountered"
    )
    assert server.output.count("Traceback") == 1
    stuck = [result for result in client.results if result.request_id.startswith("stuck")]
    assert len(stuck) >= 10
    assert {result.error_code for result in stuck} == {ErrorCode.ENGINE_FAILED}
    assert stuck[-1].error_msg in server.output, "the last ones are refused with the sentence"


def test_a_hang_that_stops_all_of_python_ends_the_process(start: Start, domain: int) -> None:
    server = begin(start, "holds")
    with PlanClient("tester", domain=domain, find_s=LIMIT_S) as client:
        task = client.submit("Look.", request_id="stuck")
        with pytest.raises(ServerLost, match="died or cannot be reached"):
            task.result(LIMIT_S)
    assert server.wait(LIMIT_S) == 1
    assert "Timeout (0:00:02)!" in server.output
    assert "hold_the_lock" in server.output


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_a_server_that_is_asked_to_end_does_not_wait_for_a_hung_engine(
    start: Start, domain: int, signum: signal.Signals
) -> None:
    server = begin(start, "sleeps", "-p", "step_timeout_s:=0.0", "-p", "shutdown_drain_s:=0.1")
    client = Watcher(domain)
    client.wait_for_server()
    goal = client.send(client.goal("stuck")).get_result_async()
    client.until(lambda: "it breaks now" in server.output)
    server.popen.send_signal(signum)
    client.until(goal.done)
    assert goal.result().result.error_code == ErrorCode.SHUTTING_DOWN
    assert server.wait(LIMIT_S) == 0
    client.close()


STOP: dict[str, Callable[[Process], None]] = {
    "killed": lambda server: server.popen.kill(),
    "ended": lambda server: server.popen.terminate(),
}


@pytest.mark.parametrize("end", sorted(STOP))
def test_a_stopped_engine_process_does_not_outlive_its_server(
    start: Start, domain: int, end: str
) -> None:
    server = begin(start, "remote", "-p", "shutdown_drain_s:=0.1")
    until(lambda: "ready" in server.output)
    (engine,) = children(server.popen.pid)
    os.kill(engine, signal.SIGSTOP)
    STOP[end](server)
    server.wait(LIMIT_S)
    assert ended(engine)


def test_a_stopped_engine_process_ends_its_server_with_a_sentence(
    start: Start, domain: int
) -> None:
    server = start("plan_server", engine_process="true", step_timeout_s=1.0)
    client = Client(domain)
    client.wait_for_server()
    (engine,) = children(server.popen.pid)
    os.kill(engine, signal.SIGSTOP)
    _, result = client.plan(client.goal("stuck"))
    assert result.error_code == ErrorCode.ENGINE_FAILED
    assert server.wait(LIMIT_S) == 1
    client.close()
    assert server.output.splitlines()[-1].startswith(HANGS)
    assert ended(engine)


def test_nothing_is_left_of_a_demo_that_is_killed_while_its_engine_hangs(
    domain: int, tmp_path: Path
) -> None:
    """A parent ties a server to itself as `demo`, `benchmark` and others do; all three hang."""
    code = (
        "import sys, time; from pathlib import Path;"
        "from timely_llm.processes.children import Child;"
        "made = Child('plan server', [sys.executable, *sys.argv[2:]], {}, Path(sys.argv[1]));"
        "print(made.pid, flush=True); time.sleep(3600)"
    )
    log, server_command = tmp_path / "server.log", [str(ROOT / HUNG[0]), "remote"]
    parent = subprocess.Popen(
        [sys.executable, "-c", code, str(log), *server_command], stdout=subprocess.PIPE, text=True,
        env=os.environ | ros_environment(domain),
    )  # fmt: skip
    assert parent.stdout is not None
    server = int(parent.stdout.readline())
    try:
        until(lambda: log.exists() and "ready" in log.read_text())
        (engine,) = children(server)
        for pid in (engine, server):
            os.kill(pid, signal.SIGSTOP)
    finally:
        parent.kill()
        parent.wait()
    assert ended(server, engine)
