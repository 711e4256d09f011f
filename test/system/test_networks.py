"""A server and robots in two network namespaces, with a link between them that fails."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from secrets import token_hex
from typing import Any

import pytest

from test.system.conftest import ROOT, Process, ros_environment
from timely_llm.core.request import ErrorCode

pytestmark = pytest.mark.faults
WAIT_S = 60.0
UDP = {"FASTDDS_BUILTIN_TRANSPORTS": "UDPv4", "ROS_AUTOMATIC_DISCOVERY_RANGE": "SUBNET"}
"""One machine's shared memory would go past the link."""
CUT, WHOLE = "1 0", "0 0"


class Site:
    """Two namespaces, processes in them, and the link."""

    def __init__(self, domain: int, folder: Path) -> None:
        self._environment = ros_environment(domain) | UDP
        self._folder = folder
        self._made: list[Process] = []
        self._names = [f"timely-{side}-{token_hex(4)}" for side in "ab"]
        for name in self._names:
            subprocess.run(["ip", "netns", "add", name], check=True)
        self._link = subprocess.Popen(
            [sys.executable, "-m", "test.system.bad_link", *self._names], cwd=ROOT,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert self._link.stdout is not None
        assert self._link.stdout.readline() == "ready\n"

    def link(self, words: str) -> None:
        """Set the share of lost frames, and the delay in seconds."""
        assert self._link.stdin is not None
        print(words, file=self._link.stdin, flush=True)

    def server(self, side: int, *ros_arguments: str) -> Process:
        """Start a server in a namespace."""
        given = {"engine": "simulated", "event_log": self._log(f"server{side}")}
        return self._node(side, "plan_server", *ros_arguments, **given)

    def dispatcher(self, side: int) -> Process:
        """Start a dispatcher in a namespace."""
        return self._node(side, "dispatch.node")

    def fleet(self, duration_s: float) -> Process:
        """Start four robots in the second namespace; they ask for some seconds."""
        given = {"robots": 4, "duration_s": duration_s, "events_per_s": 2.0}
        return self._node(1, "robot_fleet", **given, log=self._log("fleet"))

    def events(self, of: str, kind: str) -> list[dict[str, Any]]:
        """Return the events of a kind that a process has written."""
        file = self._log(of)
        lines = file.read_text().splitlines(keepends=True) if file.exists() else []
        events = [json.loads(line) for line in lines if line.endswith("\n")]
        return [event for event in events if event["event"] == kind]

    def ids(self, of: str, kind: str) -> Counter[str]:
        """Return how many events of a kind each request has."""
        return Counter(event["id"] for event in self.events(of, kind))

    def until(self, condition: Callable[[], bool]) -> None:
        end_s = time.monotonic() + WAIT_S
        while not condition():
            assert time.monotonic() < end_s, "\n".join(one.output for one in self._made)
            time.sleep(0.1)

    def close(self) -> None:
        """End all, and remove the namespaces."""
        self.link(WHOLE)
        for process in reversed(self._made):
            process.stop()
        self._link.terminate()
        self._link.wait(WAIT_S)
        for name in self._names:
            subprocess.run(["ip", "netns", "delete", name], check=True)

    def _node(self, side: int, name: str, *ros_arguments: str, **parameters: object) -> Process:
        words = [w for pair in parameters.items() for w in ("-p", f"{pair[0]}:={pair[1]}")]
        inside = "import os, sys; os.execvp('ip', ['ip', 'netns', 'exec', *sys.argv[1:]])"
        command = [
            "-c", inside, self._names[side], sys.executable, "-m", f"timely_llm.ros.{name}",
            "--ros-args", *words, *ros_arguments,
        ]  # fmt: skip
        log = self._folder / f"{len(self._made)}-{name}.log"
        self._made.append(Process(command, self._environment, log))
        return self._made[-1]

    def _log(self, of: str) -> Path:
        return self._folder / f"{of}.jsonl"


@pytest.fixture
def site(domain: int, tmp_path: Path) -> Iterator[Site]:
    allowed = ["unshare", "--net", "ip", "tuntap", "add", "dev", "tried", "mode", "tap"]
    if sys.platform != "linux" or os.getuid() or subprocess.run(allowed, check=False).returncode:
        pytest.skip("this user may not make network namespaces and devices")
    made = Site(domain, tmp_path)
    yield made
    made.close()


def outcomes(site: Site) -> Counter[str]:
    """Return how many tasks ended in each way.

    Each has one end, at the robot and at the server; a failure has a sentence; nothing was executed
    twice.
    """
    done = site.events("fleet", "done")
    assert site.ids("fleet", "done") == site.ids("fleet", "ask")
    assert all(one["error_msg"] for one in done if one["error_code"] != ErrorCode.NONE)
    started = Counter(
        (one["id"], one["epoch"], one["index"]) for one in site.events("fleet", "start")
    )
    assert set(started.values()) == {1}
    servers = ("server0", "server1")
    site.until(lambda: all(site.ids(one, "end") == site.ids(one, "request") for one in servers))
    return Counter(one["outcome"] for one in done)


def test_robots_behind_a_link_that_loses_and_delays_get_all_their_plans(site: Site) -> None:
    site.server(0)
    site.link("0.05 0.1")
    fleet = site.fleet(8.0)
    assert fleet.wait(WAIT_S) == 0, fleet.output
    assert set(outcomes(site)) <= {"finished", "canceled"}


@pytest.mark.extended
def test_after_a_partition_of_ten_seconds_robots_go_on_and_each_request_has_an_end(
    site: Site,
) -> None:
    site.server(0)
    fleet = site.fleet(20.0)
    site.until(lambda: bool(site.events("fleet", "receive")))
    site.link(CUT)
    time.sleep(10.0)
    before = len(site.events("fleet", "receive"))
    assert {one["error_msg"].partition(" (")[2] for one in errors(site)} == {
        "no sign of life for 2 s)"
    }
    site.link(WHOLE)
    site.until(lambda: len(site.events("fleet", "receive")) > before)
    assert fleet.wait(WAIT_S) == 0, fleet.output
    assert outcomes(site)["finished"] > 0


@pytest.mark.extended
def test_behind_a_dispatcher_plans_go_on_at_a_server_that_is_not_cut_off(site: Site) -> None:
    dispatcher = site.dispatcher(1)
    for side in (0, 1):
        site.server(side, "-r", f"__ns:=/s{side}")
    site.until(lambda: all(f"/s{side}/plan_server joins" in dispatcher.output for side in (0, 1)))
    fleet = site.fleet(20.0)
    site.until(lambda: bool(site.events("server0", "segment")))
    site.link(CUT)
    site.until(lambda: "server /s0/plan_server is lost" in dispatcher.output)
    site.link(WHOLE)
    site.until(lambda: dispatcher.output.count("/s0/plan_server joins") == 2)
    assert fleet.wait(WAIT_S) == 0, fleet.output
    assert set(outcomes(site)) <= {"finished", "canceled"}


def errors(site: Site) -> list[dict[str, Any]]:
    return [one for one in site.events("fleet", "done") if one["outcome"] == "error"]
