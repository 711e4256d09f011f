"""Starting and ending: wrong arguments, interrupts, a whole fleet."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

import pytest

from test.system.conftest import EXECUTORS, Start
from test.system.ros_client import LONG, PATIENT, Client, handles
from timely_llm import srv
from timely_llm.core.request import ErrorCode
from timely_llm.policies.registry import POLICIES


def rarely(parameters: dict[str, object], words: str) -> object:
    """Return parameters of a test that takes long with all of them."""
    return pytest.param(parameters, words, marks=pytest.mark.extended)


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        (
            {"policy": "best"},
            f"parameter policy must be one of {', '.join(POLICIES)}, or at the start your own:"
            " my_module:MyPolicy, not 'best'",
        ),
        rarely({"threads": 0}, "parameter threads must be from 1 to 256"),
        ({"threads": "many"}, "parameter threads must be a whole number, not 'many'"),
        (
            {"slo_classes": "['voice:speed=8']"},
            "service level 'voice:speed=8': 'speed=8' is not one of ttft, rate, deadline, weight",
        ),
        rarely(
            {"slo_classes": "['a:', 'a:']"}, "parameter slo_classes names a service level twice"
        ),
        ({"model": "/no/such/folder"}, "/no/such/folder"),
        rarely({"skill_sets": "['/no/skills.yaml']"}, "cannot read skill set /no/skills.yaml"),
        ({"event_log": "/no/such/folder/j.jsonl"}, "cannot write the event log"),
        rarely(
            {"journal": "/no/such/folder/j.jsonl"}, "cannot write the event log"
        ),  # its former name
        rarely(
            {"explain": True, "event_log": "''"}, "parameter explain needs the parameter event_log"
        ),
        rarely({"executor": "threads"}, "parameter executor must be one of single, events"),
        (
            {"qos_overrides./plan_server/stats.publisher.reliability": "maybe"},
            "cannot use the qos_overrides of ~/stats",
        ),
    ],
)
def test_a_wrong_parameter_ends_the_server_with_one_sentence(
    start: Start, parameters: dict[str, object], words: str
) -> None:
    server = start("plan_server", **parameters)
    assert server.wait(60) == os.EX_CONFIG
    assert words in server.output
    assert "Traceback" not in server.output


@pytest.mark.skipif("events" in EXECUTORS, reason="the events executor works here")
@pytest.mark.parametrize("node", ["plan_server", "robot_fleet"])
def test_an_executor_that_awaits_no_coroutines_is_refused(start: Start, node: str) -> None:
    process = start(node, executor="events")
    assert process.wait(60) == (os.EX_CONFIG if node == "plan_server" else 1)
    assert f"{node}: parameter executor must be single here" in process.output
    assert "Traceback" not in process.output


@pytest.mark.parametrize("text", ["/**: {ros__parameters: {policy: [unclosed", "- a list"])
def test_a_broken_parameter_file_ends_the_server_with_one_sentence(
    start: Start, tmp_path: Path, text: str
) -> None:
    file = tmp_path / "broken.yaml"
    file.write_text(text)
    server = start("plan_server", "--params-file", str(file))
    assert server.wait(60) == os.EX_CONFIG
    assert "plan_server: cannot start ROS: Couldn't parse params file" in server.output
    assert "Traceback" not in server.output


@pytest.mark.counted
@pytest.mark.parametrize(
    ("name", "text"), [("skills.yaml", "name: [unclosed"), ("model/config.json", "{")]
)
def test_a_broken_file_ends_the_server_with_one_sentence(
    start: Start, tmp_path: Path, name: str, text: str
) -> None:
    file = tmp_path / name
    file.parent.mkdir(exist_ok=True)
    file.write_text(text)
    wrong = {"skill_sets": f"[{file}]"} if file.suffix == ".yaml" else {"model": file.parent}
    server = start("plan_server", **wrong)
    assert server.wait(60) == os.EX_CONFIG
    assert str(tmp_path) in server.output
    assert "Traceback" not in server.output
    [sentence] = [line for line in server.output.splitlines() if line.startswith("plan_server: ")]
    assert len(sentence) < 400


def test_a_fleet_without_a_server_says_so(start: Start) -> None:
    fleet = start("robot_fleet", robots=2, server_timeout_s=1.0)
    assert fleet.wait(60) == 1
    assert "no plan server /plan_server answered within 1 s" in fleet.output
    assert "Traceback" not in fleet.output


def test_a_fleet_is_served_and_both_end_cleanly(start: Start, tmp_path: Path) -> None:
    event_log, log = tmp_path / "server.jsonl", tmp_path / "fleet.jsonl"
    server = start("plan_server", event_log=event_log)
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
    ended = [json.loads(line) for line in event_log.read_text().splitlines()]
    assert [event["event"] for event in ended[:2]] == ["opened", "ready"]
    assert {e["id"] for e in ended if e["event"] == "end"} >= set(asked)
    assert sum(e["recomputed_tokens"] for e in done.values()) == 0


@pytest.mark.parametrize("executor", EXECUTORS)
def test_robots_with_failed_segments_get_new_plans(
    start: Start, tmp_path: Path, executor: str
) -> None:
    event_log, log = tmp_path / "server.jsonl", tmp_path / "fleet.jsonl"
    server = start("plan_server", engine="simulated", event_log=event_log, executor=executor)
    fleet = start(
        "robot_fleet", robots=1, duration_s=0.5, urgent_share=0.0, failure_share=1.0, log=log,
        executor=executor,
    )  # fmt: skip
    assert fleet.wait(90) == 0, fleet.output
    server.stop()
    happened = [json.loads(line) for line in log.read_text().splitlines()]
    fails = [(e["epoch"], e["index"]) for e in happened if e["event"] == "fail"]
    assert fails == [(0, 0), (1, 0), (2, 0)]
    [done] = [e for e in happened if e["event"] == "done"]
    assert (done["outcome"], done["error_code"]) == ("error", ErrorCode.EXECUTION_FAILED)
    assert done["epochs"] == 3
    ended = [json.loads(line) for line in event_log.read_text().splitlines()]
    assert len([e for e in ended if e["event"] == "replan"]) == 2


@pytest.mark.counted
def test_an_interrupt_while_the_model_loads_ends_the_server(start: Start) -> None:
    server = start("plan_server")
    end_s = time.monotonic() + 60
    while not handles(server.popen.pid, signal.SIGTERM):
        assert server.popen.poll() is None, server.output
        assert time.monotonic() < end_s
        time.sleep(0.01)
    server.interrupt()
    assert server.wait(30) == 0
    assert "Traceback" not in server.output


@pytest.mark.extended
@pytest.mark.parametrize("kind", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize(
    ("drain_s", "code"), [(0.0, ErrorCode.SHUTTING_DOWN), (20.0, ErrorCode.NONE)]
)
def test_a_client_gets_its_plan_or_a_result_that_the_server_stops(
    start: Start, domain: int, kind: signal.Signals, drain_s: float, code: ErrorCode
) -> None:
    server = start(
        "plan_server", pace="rtx4090-llama3-8b", stats_period_s=0.2, shutdown_drain_s=drain_s
    )
    client = Client(domain)
    client.wait_for_server()
    handle = client.send(client.goal(task=LONG))
    client.until(lambda: bool(client.feedback))
    result = handle.get_result_async()
    server.popen.send_signal(kind)
    assert client.result(result).result.error_code == code
    client.close()
    assert server.wait(30) == 0
    assert "Traceback" not in server.output


@pytest.mark.counted
def test_a_second_interrupt_ends_the_server_at_once(start: Start, domain: int) -> None:
    server = start("plan_server", **PATIENT, shutdown_drain_s=3600.0)
    client = Client(domain)
    client.wait_for_action()
    handle = client.send(client.goal("stuck", skill_set="patient"))
    result = handle.get_result_async()
    client.until_listed({"stuck": "blocked"})
    server.interrupt()

    def inactive() -> bool:  # what comes within the wait that the signal falls into is taken
        answer = client.call(srv.SubmitPlan, "submit_plan", request=client.request())
        return bool(answer.error_code == ErrorCode.INACTIVE)

    client.until(inactive)
    late = client.result(client.action.send_goal_async(client.goal(skill_set="patient")))
    refused = client.result(late.get_result_async()).result
    assert refused.error_code == ErrorCode.INACTIVE
    server.interrupt()
    assert client.result(result).result.error_code == ErrorCode.SHUTTING_DOWN
    client.close()
    assert server.wait(30) == 0
    assert "Traceback" not in server.output
