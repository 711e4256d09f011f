"""The plan server with its engine in a process of its own, and without it."""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path

import pytest
from action_msgs.msg import GoalStatus

from test.system.conftest import Start
from test.system.ros_client import LONG, Client

pytestmark = pytest.mark.faults


def children(pid: int) -> list[int]:
    """Return the processes that a process has started."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has just ended
            parent = int(stat.read_text().rpartition(")")[2].split()[1])
            found += [int(stat.parent.name)] if parent == pid else []
    return found


def ended(pid: int) -> bool:
    return not Path(f"/proc/{pid}").exists()


def test_the_engine_serves_from_a_process_that_ends_with_the_server(
    start: Start, domain: int
) -> None:
    server = start("plan_server", engine_process="true")
    client = Client(domain)
    client.wait_for_server()
    (engine,) = children(server.popen.pid)
    status, result = client.plan(client.goal("whole", task=LONG))
    assert status == GoalStatus.STATUS_SUCCEEDED
    client.until(lambda: len(client.feedback) == result.segments)  # feedback may come later
    assert result.segments >= 3
    client.close()
    server.stop()
    assert server.popen.returncode == 0
    assert "Traceback" not in server.output
    assert ended(engine)


def test_a_server_without_its_engine_ends_and_says_so(start: Start, domain: int) -> None:
    server = start("plan_server", engine_process="true")
    client = Client(domain)
    client.wait_for_server()
    (engine,) = children(server.popen.pid)
    os.kill(engine, signal.SIGKILL)
    assert server.wait(30) == 1
    client.close()
    assert server.output.splitlines()[-1] == (
        "plan_server: the process of the engine transformers has ended by SIGKILL"
    )
    assert "Traceback" not in server.output
