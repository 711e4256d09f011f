"""Real processes, each test module in a ROS domain of its own."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

_domains = itertools.count(os.getpid())


class Process:
    """A child process with its output in a file, ended with the test."""

    def __init__(self, module: str, parameters: dict[str, object], domain: int, log: Path) -> None:
        arguments = [sys.executable, "-m", module, "--ros-args"]
        for name, value in parameters.items():
            arguments += ["-p", f"{name}:={value}"]
        self._log = log
        self._file = log.open("w")
        self.popen = subprocess.Popen(
            arguments,
            stdout=self._file,
            stderr=subprocess.STDOUT,
            env=os.environ | ros_environment(domain),
            start_new_session=True,
        )

    @property
    def output(self) -> str:
        return self._log.read_text()

    def wait(self, timeout_s: float) -> int:
        return self.popen.wait(timeout_s)

    def interrupt(self) -> None:
        self.popen.send_signal(signal.SIGINT)

    def stop(self) -> None:
        if self.popen.poll() is None:
            self.interrupt()
            try:
                self.wait(10)
            except subprocess.TimeoutExpired:
                self.popen.kill()
                self.wait(10)
        self._file.close()


Start = Callable[..., Process]


def ros_environment(domain: int) -> dict[str, str]:
    return {
        "ROS_DOMAIN_ID": str(domain),
        "ROS_AUTOMATIC_DISCOVERY_RANGE": "LOCALHOST",
        "OMP_NUM_THREADS": "1",
        "PYTHONUNBUFFERED": "1",
    }


@pytest.fixture(scope="module")
def domain() -> int:
    """A ROS domain that no other test module uses now."""
    return 1 + next(_domains) % 100


@pytest.fixture(scope="module")
def start(domain: int, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Start]:
    """Start `start("plan_server", policy="timely")`; ended with the module."""
    folder = tmp_path_factory.mktemp("processes")
    made: list[Process] = []

    def begin(node: str, **parameters: object) -> Process:
        log = folder / f"{node}-{len(made)}.log"
        made.append(Process(f"timely_llm.ros.{node}", parameters, domain, log))
        return made[-1]

    yield begin
    for process in reversed(made):
        process.stop()
