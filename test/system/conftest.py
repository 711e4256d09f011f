"""Real processes, each test module in a ROS domain of its own."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Generator, Iterator, Sequence
from pathlib import Path
from secrets import token_hex

import psutil
import pytest

from test.real import is_fault
from test.ros_domains import reserved_domain
from test.system.outcomes import Outcomes, Watch, check
from timely_llm.core.requirements import executors
from timely_llm.identity.keys import new_key
from timely_llm.processes.children import left_running

ROOT = Path(__file__).resolve().parents[2]
EXECUTORS = executors()
"""Those that the nodes have on the distribution that runs."""


_started: list[Process] = []
"""Processes since the phase of a test began."""


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    """A phase begins."""
    _started.clear()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_call() -> None:
    """A phase begins."""
    _started.clear()


_lost: list[str] = []  # what modules with fault tests have lost, in first runs too


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail if a request was lost, also by a first run that the plugin for second runs drops."""
    if _lost:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Name what was lost."""
    for line in _lost:
        terminalreporter.write_line(f"LOST {line}")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Stop what a failed phase has started: a second run would have two servers of one name."""
    report = yield
    outcomes = getattr(item, "funcargs", {}).get("outcomes")
    if outcomes is not None and (report.failed or (report.passed and report.when == "call")):
        outcomes.ran()
    if report.failed and report.when != "teardown":
        for process in reversed(_started):
            process.stop()
    return report


class Process:
    """A child process with its output in a file, ended with the test."""

    def __init__(self, command: Sequence[str], environment: dict[str, str], log: Path) -> None:
        self._log = log
        self._file = log.open("w")
        self.popen = subprocess.Popen(
            [sys.executable, *command],
            stdout=self._file,
            stderr=subprocess.STDOUT,
            env=os.environ | environment,
            start_new_session=True,
        )
        _started.append(self)

    @property
    def output(self) -> str:
        return self._log.read_text()

    def wait(self, timeout_s: float) -> int:
        try:
            return self.popen.wait(timeout_s)
        except subprocess.TimeoutExpired as error:
            error.add_note(self.output)
            raise

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
def domain() -> Iterator[int]:
    """A ROS domain that no other test module uses now, in this run or in another one."""
    with reserved_domain() as domain:
        yield domain


@pytest.fixture(scope="module")
def key_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the keys of two agents."""
    made = tmp_path_factory.mktemp("agents") / "keys"
    for agent in ("tester", "ann"):
        new_key(agent, made)
    return made


@pytest.fixture(scope="module")
def counted(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Outcomes | None]:
    """Count the outcomes of a module with fault tests."""
    if not any(is_fault(one) for one in request.session.items if one.path == request.path):
        yield None
        return
    watch = Watch(request.getfixturevalue("domain"))
    made = Outcomes(watch, tmp_path_factory.mktemp("logs"))
    with made.hearing():
        yield made
    watch.close()


@pytest.fixture(autouse=True)
def outcomes(
    request: pytest.FixtureRequest, counted: Outcomes | None, tmp_path: Path
) -> Outcomes | None:
    """Count the outcomes of a fault test; its module fails if a request or KV is lost."""
    if counted is not None:
        counted.begin(request.node.nodeid, is_fault(request.node), tmp_path)
    return counted


@pytest.fixture(scope="module", autouse=True)
def none_left(counted: Outcomes | None, request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail a module that leaves a process, and end that process."""
    name, value = "TIMELY_LLM_TEST", token_hex(8)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(name, value)
        yield
    lines = []
    for process in left_running(name, value):
        with contextlib.suppress(psutil.NoSuchProcess):
            lines.append(shlex.join(process.cmdline()))
            process.kill()
    if counted is not None:
        try:
            check(counted.count(), len(lines), request.config.getoption("--outcomes"))
        except AssertionError as error:
            _lost.append(f"{request.path.name}: {str(error).splitlines()[0]}")
            raise
    assert lines == [], "processes were left"


@pytest.fixture(scope="module")
def start(
    domain: int,
    none_left: None,
    counted: Outcomes | None,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Start]:
    """Start `start("plan_server", policy="timely")`; ended with the module.

    A name with a slash is a file to run, with its arguments: `start("scripts/timely-llm", "ask")`.
    Servers of a module with fault tests have event logs, so that their requests are counted.
    """
    folder = tmp_path_factory.mktemp("processes")
    made: list[Process] = []

    def begin(
        name: str, *arguments: str, environment: dict[str, str] | None = None, **parameters: object
    ) -> Process:
        serves = name == "plan_server" or name.endswith("_server.py")
        logged: dict[str, object] = {}
        if counted is not None and serves:
            logged = {"event_log": counted.logs / f"{token_hex(4)}.jsonl"}
        if "/" in name:
            words = [word for pair in logged.items() for word in ("-p", f"{pair[0]}:={pair[1]}")]
            command = [str(ROOT / name), *arguments, *words]
        else:
            if name == "plan_server":  # no other server is in this domain
                parameters = {"name_check_s": 0.0} | logged | parameters
            pairs = [f"{parameter}:={value}" for parameter, value in parameters.items()]
            words = [word for pair in pairs for word in ("-p", pair)]
            command = ["-m", f"timely_llm.ros.{name}", "--ros-args", *words, *arguments]
        variables = ros_environment(domain) | (environment or {})
        made.append(Process(command, variables, folder / f"{Path(name).stem}-{len(made)}.log"))
        return made[-1]

    begin.made = made  # type: ignore[attr-defined]
    yield begin
    for process in reversed(made):
        process.stop()
