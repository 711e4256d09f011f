"""`timely-llm ask` and the examples, as processes of their own."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import pytest

from test.system.conftest import ROOT, Process, Start
from test.system.ros_client import LONG, Client, serving

EXAMPLES = sorted(path.name for path in (ROOT / "examples").glob("*.py"))
SHOWN = {"talk.py": "SLO met: "}
WAIT_S = 60.0


@pytest.fixture(scope="module")
def server(start: Start, domain: int) -> Iterator[Client]:
    # Constrained: what the small model answers is a plan, whatever it was trained for.
    with serving(start, Client, domain, pace="rtx4090-llama3-8b", constrained=True) as made:
        yield made


def ask(start: Start, *arguments: str) -> Process:
    return start("scripts/timely-llm", "ask", "--wait", "30", *arguments)


@pytest.mark.extended
@pytest.mark.parametrize("example", EXAMPLES)
def test_an_example_runs(start: Start, server: Client, example: str) -> None:
    process = start(f"examples/{example}")
    assert process.wait(WAIT_S) == 0, process.output
    assert SHOWN.get(example, "segment 0: ") in process.output
    assert "Traceback" not in process.output
    assert server.listed() == {}


def test_an_example_without_a_server_says_so(start: Start, server: Client) -> None:
    process = start("examples/fly.py", environment={"ROS_DOMAIN_ID": "101"})
    assert process.wait(WAIT_S) == 1
    assert process.output.startswith("fly: no plan server /plan_server answered within 10 s")
    assert len(process.output.splitlines()) == 1


def test_ask_shows_segments_and_result(start: Start, server: Client) -> None:
    process = ask(start, LONG)
    assert process.wait(WAIT_S) == 0, process.output
    *segments, result = process.output.splitlines()
    assert all(re.match(r" +\d+\.\d\d s  \S", line) for line in segments)
    assert result.startswith(f"complete: {len(segments)} segments, the first after ")


def test_ask_speaks_json(start: Start, server: Client) -> None:
    process = ask(start, "Go up 50 cm.", "--scene", "chair", "--urgent", "--json-lines")
    assert process.wait(WAIT_S) == 0, process.output
    *segments, result = [json.loads(line) for line in process.output.splitlines()]
    assert [segment["index"] for segment in segments] == list(range(len(segments)))
    assert segments[-1]["final"]
    assert "".join(segment["text"] for segment in segments) == result["result"]["plan"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["Row.", "--skill-set", "boat"], "unknown skill set 'boat'"),
        ([" "], "the task is empty"),
        (["Go.", "--server", "absent", "--wait", "0.2"], "no plan server /absent answered"),
        (["Go.", "--agent", "x" * 200], "agent must have 1 to 128 characters"),
    ],
)
def test_ask_prints_a_fault_in_one_line(
    start: Start, server: Client, arguments: list[str], words: str
) -> None:
    process = ask(start, *arguments)
    assert process.wait(WAIT_S) == 1
    assert process.output.startswith("timely-llm: ")
    assert words in process.output
    assert len(process.output.splitlines()) == 1


def test_an_interrupt_cancels_the_request(start: Start, server: Client) -> None:
    process = ask(start, LONG, "--pretend", "--agent", "impatient")
    server.until(lambda: bool(re.search(r"\d s  \S", process.output)))
    process.interrupt()
    assert process.wait(WAIT_S) == 130
    assert re.search(r"timely-llm: canceled the request after \d+\.\d s", process.output)
    assert "Traceback" not in process.output
    server.until_listed({})
