"""Starting and ending: wrong arguments, interrupts, a whole fleet."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path

import pytest

from test.system.conftest import Start
from test.system.ros_client import LONG, Client
from timely_llm.core.request import ErrorCode


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        (
            {"policy": "best"},
            "parameter policy must be one of fcfs, stream, fcfs-segments, edf, timely, not 'best'",
        ),
        ({"threads": 0}, "parameter threads must be from 1 to 256"),
        ({"threads": "many"}, "parameter threads must be a whole number, not 'many'"),
        ({"model": "/no/such/folder"}, "/no/such/folder"),
        ({"skill_sets": "['/no/skills.yaml']"}, "cannot read skill set /no/skills.yaml"),
        ({"journal": "/no/such/folder/j.jsonl"}, "cannot write the journal"),
    ],
)
def test_a_wrong_parameter_ends_the_server_with_one_sentence(
    start: Start, parameters: dict[str, object], words: str
) -> None:
    server = start("plan_server", **parameters)
    assert server.wait(60) == 1
    assert words in server.output
    assert "Traceback" not in server.output


def test_a_fleet_without_a_server_says_so(start: Start) -> None:
    fleet = start("robot_fleet", robots=2, server_timeout_s=1.0)
    assert fleet.wait(60) == 1
    assert "no plan server answered within 1 s" in fleet.output
    assert "Traceback" not in fleet.output


def test_a_fleet_is_served_and_both_end_cleanly(start: Start, tmp_path: Path) -> None:
    journal, log = tmp_path / "server.jsonl", tmp_path / "fleet.jsonl"
    server = start("plan_server", journal=journal)
    fleet = start(
        "robot_fleet", robots=4, duration_s=8.0, events_per_s=1.0, max_tasks=3, log=log, seed=1
    )
    assert fleet.wait(90) == 0, fleet.output
    server.interrupt()
    assert server.wait(30) == 0, server.output
    for process in (server, fleet):
        assert "Traceback" not in process.output
    happened = [json.loads(line) for line in log.read_text().splitlines()]
    asked = [e["id"] for e in happened if e["event"] == "ask"]
    done = {e["id"]: e for e in happened if e["event"] == "done"}
    assert len(asked) >= 3
    assert set(asked) == set(done)
    finished = [e for e in done.values() if e["outcome"] == "finished"]
    assert finished
    assert all(e["response_s"] > 0 for e in finished)
    # Nothing is executed twice, and everything that finished had started.
    starts = [(e["id"], e["index"]) for e in happened if e["event"] == "start"]
    assert len(starts) == len(set(starts))
    assert {(e["id"], e["index"]) for e in happened if e["event"] == "finish"} <= set(starts)
    ended = [json.loads(line) for line in journal.read_text().splitlines()]
    assert ended[0]["event"] == "ready"
    assert {e["id"] for e in ended if e["event"] == "end"} >= set(asked)
    assert sum(e["recomputed_tokens"] for e in done.values()) == 0


def test_an_interrupt_while_the_model_loads_ends_the_server(start: Start) -> None:
    server = start("plan_server")
    with pytest.raises(subprocess.TimeoutExpired):
        server.wait(1.5)
    server.interrupt()
    assert server.wait(30) == 0
    assert "Traceback" not in server.output


@pytest.mark.parametrize("kind", [signal.SIGINT, signal.SIGTERM])
def test_who_waits_for_a_plan_is_told_that_the_server_stops(
    start: Start, domain: int, kind: signal.Signals
) -> None:
    server = start("plan_server", pace="rtx4090-llama3-8b", stats_period_s=0.2)
    client = Client(domain)
    client.wait_for_server()
    handle = client.send(client.goal(task=LONG))
    client.until(lambda: bool(client.feedback))
    result = handle.get_result_async()
    server.popen.send_signal(kind)
    assert client.result(result).result.error_code == ErrorCode.SHUTTING_DOWN
    client.close()
    assert server.wait(30) == 0
    assert "Traceback" not in server.output
