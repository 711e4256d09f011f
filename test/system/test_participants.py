"""A server among many robots, each a participant of DDS of its own, with a discovery server."""

from __future__ import annotations

import os
import shutil
import signal
import site
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from test.ros_domains import reserved_domain
from test.system.conftest import Process, Start
from test.system.ros_client import PATIENT, Client, serving
from timely_llm import msg, srv
from timely_llm.core.request import ErrorCode
from timely_llm.ros import qos

pytestmark = pytest.mark.faults
JOIN_S, WAIT_S = 400.0, 60.0
PERIOD_S = 0.5
"""Time between two control calls, seconds."""
LIMITS = {"client_timeout_s": 15.0, "answer_timeout_s": 3600.0}
"""Of the server: the dead are given up, and a plan waits for its value until all have joined."""
PROCESSES = 3
"""A third of the robots is killed."""


@pytest.fixture(scope="module")
def domain(request: pytest.FixtureRequest) -> Iterator[int]:
    """A ROS domain with a discovery server, which all nodes of this module ask."""
    if any(item.path != request.path for item in request.session.items):
        pytest.skip(
            "a process that has used a discovery server finds no other nodes: make test-faults runs"
            " this file by itself"
        )
    command = shutil.which("fast-discovery-server", path=f"{sys.prefix}/bin:{os.environ['PATH']}")
    if command is None:
        pytest.skip("fast-discovery-server is not installed")
    bundled = [
        path for folder in site.getsitepackages() for path in Path(folder).glob("ros_*.libs")
    ]
    libraries = [f"{sys.prefix}/lib", *map(str, bundled), os.environ.get("LD_LIBRARY_PATH", "")]
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    with (
        reserved_domain() as domain,
        pytest.MonkeyPatch.context() as patch,
        subprocess.Popen(
            [command, "-i", "0", "-l", "127.0.0.1", "-p", port],
            env=os.environ | {"LD_LIBRARY_PATH": ":".join(libraries)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
        ) as discovery,
    ):
        patch.setenv("ROS_DISCOVERY_SERVER", f"127.0.0.1:{port}")
        patch.setenv("ROS_SUPER_CLIENT", "TRUE")  # what counts outcomes lists all topics
        patch.setenv("FASTDDS_BUILTIN_TRANSPORTS", "UDPv4")
        yield domain
        assert discovery.poll() is None, "it served to the end"
        discovery.kill()


def lines(group: Process, word: str) -> list[str]:
    """Return what the robots of a process have printed with this first word, without it."""
    pairs = [line.partition(" ") for line in group.output.splitlines()]
    return [rest for first, _, rest in pairs if first == word]


@pytest.mark.timeout(JOIN_S + 4 * WAIT_S)
@pytest.mark.parametrize("robots", [30, 100])
def test_each_of_many_participants_is_served_and_a_third_is_killed(
    start: Start, domain: int, robots: int
) -> None:
    names = {f"robot-{number}" for number in range(robots)}
    with serving(start, Client, domain, **PATIENT, **LIMITS) as client:
        codes: list[tuple[str, int]] = []
        client.node.create_subscription(
            msg.PlanResult,
            "plan_server/results",
            lambda result: codes.append((result.request_id, result.error_code)),
            qos.reliable(2 * robots),
        )
        control: Any = client.node.create_client(srv.ListRequests, "plan_server/list_requests")
        assert control.wait_for_service(WAIT_S)

        def listed() -> set[str]:
            next_s = time.monotonic() + PERIOD_S
            answer = client.result(control.call_async(srv.ListRequests.Request()))
            client.until(lambda: time.monotonic() >= next_s)
            return {status.request_id for status in answer.requests}

        client.until(lambda: bool(client.stats))
        free = client.stats[-1].free_kv_tokens
        each = -(-robots // PROCESSES)
        groups = [
            start(
                "test/system/many_robots.py", str(first), str(min(each, robots - first)),
                environment={"ROS_SUPER_CLIENT": "FALSE"},
            )
            for first in range(0, robots, each)
        ]  # fmt: skip

        def all_hold() -> bool:
            listed()
            assert all(group.popen.poll() is None for group in groups)
            assert not any(lines(group, "ended") for group in groups)
            return sum(len(lines(group, "holds")) for group in groups) == robots

        client.until(all_hold, JOIN_S)
        assert listed() == names, "each is served, and holds its KV"
        killed, *others = groups
        killed.popen.kill()
        living = {f"robot-{number}" for number in range(each, robots)}
        client.until(lambda: listed() == living)
        for group in others:
            group.popen.send_signal(signal.SIGUSR1)
            client.until(lambda group=group: group.popen.poll() is not None)  # type: ignore[misc]
            assert group.wait(0) == 0
        outcomes = [line.split(maxsplit=1) for group in others for line in lines(group, "ended")]
        assert sorted(outcomes) == sorted([name, "0"] for name in living)
        client.until(lambda: {name for name, _ in codes} == names)
        assert set(Counter(name for name, _ in codes).values()) == {1}, "one result each"
        assert {name for name, code in codes if code == ErrorCode.CLIENT_SILENT} == names - living
        assert {name for name, code in codes if code == ErrorCode.NONE} == living
        assert listed() == set()
        client.until(lambda: client.stats[-1].free_kv_tokens == free)
