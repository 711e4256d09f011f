"""A signal ends a spin between two callbacks, never inside one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest
import rclpy
from rclpy.context import Context
from rclpy.executors import SingleThreadedExecutor
from rclpy.task import Future

from timely_llm.core.errors import ConfigurationError
from timely_llm.ros import process


class Executor:
    """Runs one callback each time."""

    def __init__(self, callback: object) -> None:
        self.callback = callback
        self.done = 0

    def spin_once(self, timeout_sec: float) -> None:
        self.callback()  # type: ignore[operator]
        self.done += 1


@pytest.fixture(autouse=True)
def interrupts(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr("rclpy.ok", lambda: True)
    monkeypatch.setattr(process, "_interrupt", process._Interrupt())
    before = signal.signal(signal.SIGHUP, process._interrupt)
    yield
    signal.signal(signal.SIGHUP, before)


def test_a_callback_is_finished_before_the_spin_ends() -> None:
    executor = Executor(lambda: signal.raise_signal(signal.SIGHUP))
    with pytest.raises(KeyboardInterrupt):
        process.spin(executor)  # type: ignore[arg-type]
    assert executor.done == 1


def test_a_second_signal_breaks_into_a_callback_that_does_not_end() -> None:
    def hang() -> None:
        signal.raise_signal(signal.SIGHUP)
        signal.raise_signal(signal.SIGHUP)

    executor = Executor(hang)
    with pytest.raises(KeyboardInterrupt):
        process.spin(executor)  # type: ignore[arg-type]
    assert executor.done == 0


def test_a_coroutine_that_waits_keeps_no_other_callback_from_running(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    context = Context()
    rclpy.init(context=context)
    node = rclpy.create_node("spinning", context=context)
    executor = SingleThreadedExecutor(context=context)
    executor.add_node(node)
    ran: list[str] = []
    never: Future[None] = Future()

    async def waits() -> None:
        ran.append("waits")
        await never

    executor.create_task(waits)
    node.create_timer(0.001, lambda: ran.append("timer"))
    pauses = (0.01 + number / 1e6 for number in count())  # another one for each wait
    process.spin(executor, lambda: "timer" not in ran, timeout_s=30.0, poll_s=lambda: next(pauses))
    executor.shutdown(timeout_sec=1)
    node.destroy_node()
    rclpy.shutdown(context=context)
    assert ran == ["waits", "timer"]


def test_outside_of_a_spin_a_signal_interrupts_at_once() -> None:
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGHUP)


def test_each_spin_begins_without_the_signals_of_the_one_before() -> None:
    executor = Executor(lambda: signal.raise_signal(signal.SIGHUP))
    with pytest.raises(KeyboardInterrupt):
        process.spin(executor)  # type: ignore[arg-type]
    calm = Executor(lambda: None)
    process.spin(calm, lambda: calm.done < 3)  # type: ignore[arg-type]
    assert calm.done == 3


def secured(keystore: Path | None, strategy: str, enclave: str = "/") -> dict[str, str]:
    """Return the environment of a process that should be secured."""
    return {
        "ROS_SECURITY_ENABLE": "true", "ROS_SECURITY_STRATEGY": strategy,
        "ROS_SECURITY_KEYSTORE": str(keystore or ""), "ROS_SECURITY_ENCLAVE_OVERRIDE": enclave,
    }  # fmt: skip


@pytest.mark.parametrize("exists", [False, True])
def test_a_node_that_must_be_secured_and_has_no_enclave_does_not_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, exists: bool
) -> None:
    (tmp_path / "enclaves").mkdir()
    for name, value in secured(tmp_path if exists else None, "Enforce", "/robot").items():
        monkeypatch.setenv(name, value)
    lacks = "there is no folder" if exists else "ROS_SECURITY_KEYSTORE names no folder"
    with pytest.raises(ConfigurationError, match=f"ROS_SECURITY_ENABLE is true, and .*{lacks}"):
        process.check_security(())
    (tmp_path / "enclaves" / "robot").mkdir()
    if exists:
        process.check_security(())
    monkeypatch.setenv("ROS_SECURITY_ENABLE", "false")
    process.check_security(())


@pytest.mark.parametrize("keystore", [False, True])
def test_a_node_says_that_it_is_not_secured(tmp_path: Path, keystore: bool) -> None:
    """The wheels' Fast DDS has no security plugins: a node with a keystore cannot start."""
    (tmp_path / "enclaves").mkdir()
    code = (
        "from timely_llm.ros import process; import rclpy, sys\n"
        "def work():\n"
        "    with process.ros([]): rclpy.create_node('a'); print('made')\n"
        "sys.exit(process.exit_status('a', work))"
    )
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code], text=True, capture_output=True, timeout=60,
        env={**os.environ, **secured(tmp_path if keystore else None, "Permissive")},
    )  # fmt: skip
    if keystore and done.returncode:
        assert (
            done.stderr.strip()
            .splitlines()[-1]
            .startswith("a: ROS_SECURITY_ENABLE is true, and this Fast DDS has no security plugins")
        )
        assert "Traceback" not in done.stderr
    else:
        assert done.stdout == "made\n"
        assert keystore or "this node is NOT secured" in done.stderr


REAL_TIME = """
import os, threading
from timely_llm.ros.process import in_real_time

done = threading.Event()
one = threading.Thread(target=done.wait)
one.start()
refused = in_real_time(5)
found = {os.sched_getscheduler(int(name)) for name in os.listdir("/proc/self/task")}
done.set()
assert found == ({os.SCHED_OTHER} if refused else {os.SCHED_RR}), (found, refused)
print(refused or "in real time")
"""


def test_all_threads_of_a_process_get_a_real_time_priority_or_a_sentence_says_why_not() -> None:
    ran = subprocess.run(
        [sys.executable, "-c", REAL_TIME], capture_output=True, text=True, check=True, timeout=60
    )
    said = ran.stdout.strip()
    assert said == "in real time" or said.startswith(
        "realtime_priority 5 is not permitted (Operation not permitted), and"
    )


def test_a_process_that_may_not_run_in_real_time_is_given_the_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(thread: int, policy: int, parameters: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr("os.sched_setscheduler", refuse)
    assert process.in_real_time(5) == (
        "realtime_priority 5 is not permitted (Operation not permitted), and the usual priority is"
        " kept: set the limit rtprio of the user, or grant CAP_SYS_NICE"
    )
