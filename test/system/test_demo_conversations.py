"""Robots and people together: the nodes, the demo around them, and how all of it ends."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from test.system.conftest import Process, Start
from test.system.ros_client import Client, serving
from test.system.ros_talker import SLOW

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")

WAIT_S = 60.0
POLICY = "deadline"


def lines(log: Path) -> list[dict[str, Any]]:
    """Return the whole lines of a log that may be growing."""
    if not log.exists():
        return []
    return [json.loads(line) for line in log.read_text().splitlines(True) if line.endswith("\n")]


def until(condition: Callable[[], bool], process: Process) -> None:
    end_s = time.monotonic() + WAIT_S
    while not condition():
        assert process.popen.poll() is None, process.output
        assert time.monotonic() < end_s, f"waited for too long: {process.output}"
        time.sleep(0.05)


def of_kind(log: Path, kind: str) -> list[dict[str, Any]]:
    return [event for event in lines(log) if event["event"] == kind]


def children(folder: Path) -> dict[str, int]:
    """Return the processes that write into a folder, by the node that they run."""
    found: dict[str, int] = {}
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().decode().split("\0")
        except OSError:
            continue
        if any(str(folder) in word for word in words) and "timely_llm.processes.tied" not in words:
            found |= {
                name: int(path.parent.name)
                for module, name in pairwise(words)
                if module == "timely_llm.entry"
            }
    return found


@pytest.fixture
def server(start: Start, domain: int) -> Iterator[Client]:
    with serving(start, Client, domain, **SLOW) as made:
        yield made


def test_people_without_a_server_say_so(start: Start) -> None:
    people = start("talkers", server_timeout_s=1.0)
    assert people.wait(WAIT_S) == 1
    [sentence] = people.output.splitlines()
    assert sentence.startswith("talkers: no plan server /plan_server answered within 1 s")


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"people": 0}, "parameter people must be from 1 to 512"),
        ({"questions": "/nowhere.yaml"}, "cannot read question set /nowhere.yaml"),
        ({"log": "/nowhere/log"}, "cannot write the event log /nowhere/log"),
        ({"server": "'a b'"}, "cannot make a client of 'a b'"),
    ],
)
def test_people_say_in_one_line_what_is_wrong(
    start: Start, parameters: dict[str, object], words: str
) -> None:
    people = start("talkers", **parameters)
    assert people.wait(WAIT_S) == 1
    [sentence] = people.output.splitlines()
    assert words in sentence


def test_people_who_are_interrupted_cancel_what_they_asked(
    start: Start, server: Client, tmp_path: Path
) -> None:
    log = tmp_path / "people.jsonl"
    people = start("talkers", people=3, pause_s=0.1, log=log)
    until(lambda: len({e["id"] for e in of_kind(log, "heard")}) == 3, people)
    people.interrupt()
    assert people.wait(WAIT_S) == 0
    assert "Traceback" not in people.output
    server.until_listed({})
    ends = {e["id"]: e["outcome"] for e in of_kind(log, "answered")}
    assert set(ends) == {e["id"] for e in of_kind(log, "question")}
    assert "canceled" in ends.values()


def demo(start: Start, folder: Path, *arguments: str) -> Process:
    return start(
        "scripts/timely-llm", "demo", "--robots", "2", "--people", "2", "--engine",
        "simulated", "--plain", "--events-per-s", "2", "--policy", POLICY, "--output", str(folder),
        *arguments,
    )  # fmt: skip


def test_a_demo_serves_robots_and_people_at_once(start: Start, tmp_path: Path) -> None:
    numbers = tmp_path / "numbers.json"
    both = demo(start, tmp_path, "--duration", "3", "--json", str(numbers))
    assert both.wait(WAIT_S) == 0, both.output
    assert children(tmp_path) == {}
    assert "2 robots and 2 people" in both.output
    found = json.loads(numbers.read_text())
    assert (found["errors"], found["people"]) == (0, 2)
    assert found["served"] > 0
    assert set(found["conversations"]) == {"text", "voice"}
    log, event_log = (tmp_path / f"{who}-{POLICY}.jsonl" for who in ("talkers", "server"))
    asked = [e["id"] for e in of_kind(log, "question")]
    outcomes = {e["id"]: e["outcome"] for e in of_kind(log, "answered")}
    assert sorted(asked) == sorted(outcomes)
    assert set(outcomes.values()) <= {"answered", "canceled"}
    assert "answered" in outcomes.values()
    for request_id, outcome in outcomes.items():
        heard, said = (
            "".join(e["text"] for e in of_kind(file, kind) if e["id"] == request_id)
            for file, kind in ((log, "heard"), (event_log, "chunk"))
        )
        # A person who ends while an answer goes on need not hear the last words of it.
        assert heard == said or (outcome == "canceled" and said.startswith(heard))
    assert {p.name for p in tmp_path.glob("*.png")} == {
        f"timeline-{POLICY}.png", f"timeline-{POLICY}-burst.png",
    }  # fmt: skip


def test_an_interrupt_ends_a_demo_with_people(start: Start, tmp_path: Path) -> None:
    both = demo(start, tmp_path)
    until(lambda: bool(of_kind(tmp_path / f"talkers-{POLICY}.jsonl", "heard")), both)
    assert len(children(tmp_path)) == 3
    both.interrupt()
    assert both.wait(WAIT_S) == 130
    assert both.output.splitlines()[-1] == ("timely-llm: ended by SIGINT; nothing is left running")
    assert children(tmp_path) == {}


@pytest.mark.parametrize(
    ("module", "name"), [("talkers", "talkers"), ("plan_server", "plan server")]
)
@pytest.mark.faults
def test_the_death_of_any_process_ends_the_demo(
    start: Start, tmp_path: Path, module: str, name: str
) -> None:
    both = demo(start, tmp_path)
    until(lambda: bool(of_kind(tmp_path / f"talkers-{POLICY}.jsonl", "heard")), both)
    os.kill(children(tmp_path)[module], signal.SIGKILL)
    assert both.wait(WAIT_S) == 1
    assert f"timely-llm: the {name} was ended by SIGKILL" in both.output.splitlines()[-1]
    assert "Traceback" not in both.output
    assert children(tmp_path) == {}
