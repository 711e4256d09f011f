"""The servers of a demo, without processes: what is killed when, and what is not forgiven."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from pathlib import Path

import pytest

from test.demo.two_servers import run_until
from timely_llm.demo.files import Files
from timely_llm.demo.run import KILLED_AT, KILLED_BEFORE, STARTED_AGAIN_AT, DemoServers
from timely_llm.demo.settings import DemoSettings
from timely_llm.processes.children import ProcessError

SETTINGS = DemoSettings(servers=2, duration_s=1.0)
BEGAN_S = 0.9


class Process:
    """A child without a process."""

    def __init__(self, name: str, log: Path) -> None:
        self.name, self.log = name, log
        self.status: int | None = None
        log.touch()

    def send(self, signum: int) -> None:
        self.status = -signum

    def obituary(self) -> str:
        return f"the {self.name} ended"


class Processes:
    """Children without processes."""

    def __init__(self) -> None:
        self.made: list[Process] = []

    def start(self, name: str, command: Sequence[str], environment: object, log: Path) -> Process:
        self.made.append(Process(name, log))
        return self.made[-1]


@pytest.fixture
def processes() -> Processes:
    return Processes()


@pytest.fixture
def servers(tmp_path: Path, processes: Processes) -> DemoServers:
    files = Files.fresh(tmp_path, "edf", SETTINGS.server_names)
    return DemoServers(SETTINGS, "edf", files, processes, run_until(1.2))  # type: ignore[arg-type]


def test_several_are_ready_when_all_have_joined_the_dispatcher(
    servers: DemoServers, processes: Processes
) -> None:
    assert [one.name for one in processes.made] == [
        "plan server s1",
        "plan server s2",
        "dispatcher",
    ]
    log = processes.made[-1].log
    log.write_text("[plan_server]: server /s1/plan_server joins\n")
    assert not servers.ready
    assert servers.late == processes.made[1].log
    log.write_text(log.read_text() + "[plan_server]: server /s2/plan_server joins\n")
    assert servers.ready


def test_a_busy_server_is_killed_once_and_started_again(
    servers: DemoServers, processes: Processes
) -> None:
    servers.tick(BEGAN_S + KILLED_AT - 0.01)
    assert [one.status for one in processes.made] == [None] * 3
    servers.tick(BEGAN_S + KILLED_AT)
    killed = next(one for one in processes.made if one.status == -signal.SIGKILL)
    servers.check()
    servers.tick(BEGAN_S + KILLED_BEFORE)
    assert len(processes.made) == 3
    servers.tick(BEGAN_S + STARTED_AGAIN_AT)
    servers.tick(BEGAN_S + 0.99)
    assert [one.name for one in processes.made[3:]] == [killed.name]
    assert sum(one.status is not None for one in processes.made) == 1
    servers.check()


@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_process_that_was_not_killed_here_may_not_end(
    servers: DemoServers, processes: Processes, place: int
) -> None:
    processes.made[place].status = 1
    with pytest.raises(ProcessError, match=f"the {processes.made[place].name} ended"):
        servers.check()


def test_the_second_life_of_a_server_may_not_end_either(
    servers: DemoServers, processes: Processes
) -> None:
    for share in (KILLED_AT, STARTED_AGAIN_AT):
        servers.tick(BEGAN_S + share)
    processes.made[-1].status = 1
    with pytest.raises(ProcessError):
        servers.check()
