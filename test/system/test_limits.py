"""Limits of a server: no client can block it for ever."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from test.system.conftest import Process, Start
from test.system.ros_client import PATIENT, Client, serving
from timely_llm import msg, srv
from timely_llm.core.request import ErrorCode, ReportState
from timely_llm.ros.server.claim import FIND_S

YAML = Path(__file__).with_name("patient.yaml")
CLIENT = """
import sys, time
from timely_llm.ros.client.plan import PlanClient
client = PlanClient("victim", "patient", alive_period_s=0.1)
task = client.submit("Look.", request_id=sys.argv[1])
print(next(task.segments()).text, flush=True)
time.sleep(600)
"""


@pytest.fixture
def client(start: Start, domain: int, request: pytest.FixtureRequest) -> Iterator[Client]:
    """A client of a server with the parameters that the test was given."""
    with serving(start, Client, domain, **PATIENT, **getattr(request, "param", {})) as made:
        yield made


def error_of(client: Client, **fields: Any) -> tuple[ErrorCode, str]:
    """Send a request and return its result."""
    _, result = client.plan(client.goal(skill_set="patient", **fields))
    return ErrorCode(result.error_code), result.error_msg


def submit(client: Client, request_id: str, **fields: Any) -> Any:
    request = msg.PlanRequest(
        request_id=request_id, skill_set="patient", task="Look.", **({"agent": "tester"} | fields)
    )
    return client.call(srv.SubmitPlan, "submit_plan", request=request)


def test_a_cancellation_that_names_another_agent_is_refused(client: Client) -> None:
    assert submit(client, "one").error_code == ErrorCode.NONE
    refused = client.call(srv.CancelRequest, "cancel_request", request_id="one", agent="stranger")
    assert not refused.canceled
    assert refused.error_msg == (
        "request 'one' is not one of agent 'stranger': name its own agent, or none"
    )
    assert "one" in client.listed()
    canceled = client.call(srv.CancelRequest, "cancel_request", request_id="one", agent="tester")
    assert canceled.canceled and not canceled.error_msg
    unknown = client.call(srv.CancelRequest, "cancel_request", request_id="one", agent="tester")
    assert unknown.error_msg == "no request 'one' is being served"


@pytest.mark.counted
@pytest.mark.parametrize("client", [{"max_requests": 2}], indirect=True)
def test_a_full_queue_refuses(client: Client) -> None:
    assert submit(client, "one").error_code == submit(client, "two").error_code == ErrorCode.NONE
    code, words = error_of(client)
    assert code is ErrorCode.QUEUE_FULL
    assert words == "2 requests are being served, the most allowed: try later"
    assert submit(client, "three").error_code == ErrorCode.QUEUE_FULL
    client.call(srv.CancelRequest, "cancel_request", request_id="one")
    assert submit(client, "three").error_code == ErrorCode.NONE


@pytest.mark.counted
@pytest.mark.parametrize("client", [{"max_requests_per_agent": 1}], indirect=True)
def test_one_agent_cannot_take_all(client: Client) -> None:
    assert submit(client, "one").error_code == ErrorCode.NONE
    code, words = error_of(client)
    assert code is ErrorCode.AGENT_LIMIT
    assert words.startswith("1 request of 'tester' is being served")
    assert submit(client, "two", agent="other").error_code == ErrorCode.NONE


RATES = {"agent_requests_per_s": 0.05, "agent_burst": 4, "new_agents_requests_per_s": 0.05}


@pytest.mark.parametrize("client", [RATES | {"new_agents_burst": 1000}], indirect=True)
def test_an_agent_that_asks_too_often_reads_when_to_ask_again(client: Client) -> None:
    for name in ("one", "two", "three", "four"):
        assert submit(client, name, agent="flood").error_code == ErrorCode.NONE
    refused = submit(client, "five", agent="flood")
    assert refused.error_code == ErrorCode.AGENT_LIMIT
    words = "requests of 'flood' come faster than 0.05 a second, the most allowed for one agent"
    assert refused.error_msg.startswith(f"{words}: ask again in ")
    _, result = client.plan(client.goal(skill_set="patient", agent="flood"))
    assert result.error_code == ErrorCode.AGENT_LIMIT
    assert 0.0 < result.retry_after <= 20.0
    assert f"ask again in {result.retry_after:g} s" in result.error_msg
    assert submit(client, "six", agent="honest").error_code == ErrorCode.NONE


@pytest.mark.counted
@pytest.mark.parametrize("client", [RATES | {"new_agents_burst": 20}], indirect=True)
def test_new_names_do_not_evade_the_rate(client: Client) -> None:
    codes = []
    for number in range(24):
        answer = submit(client, f"r{number}", agent=f"invented-{number}")
        codes.append(answer.error_code)
    assert codes.count(ErrorCode.NONE) <= 20
    assert codes[-1] == ErrorCode.AGENT_LIMIT
    assert "agents of which none has ended well come faster than 0.05" in answer.error_msg


@pytest.mark.counted
@pytest.mark.parametrize("client", [{"answer_timeout_s": 0.3}], indirect=True)
def test_a_value_that_does_not_come_is_not_waited_for_for_ever(client: Client) -> None:
    code, words = error_of(client)
    assert code is ErrorCode.NO_ANSWER
    assert words.startswith("'tester' did not report the value of tc within 0.3 s")


@pytest.mark.counted
@pytest.mark.parametrize("client", [{"max_prompt_tokens": 100}], indirect=True)
def test_a_prompt_that_is_too_long_is_refused(client: Client) -> None:
    code, words = error_of(client, task="Look. " * 200)
    assert code is ErrorCode.INVALID_REQUEST
    assert words.endswith("at most 800 are taken where prompts may have 100 tokens")


@pytest.mark.parametrize("client", [{"max_skill_sets": 1}], indirect=True)
def test_skill_sets_are_counted(client: Client) -> None:
    answer = client.call(srv.RegisterSkillSet, "register_skill_set", yaml="name: [unclosed")
    assert answer.error_code == ErrorCode.INVALID_REQUEST
    assert "is not valid YAML" in answer.error_msg
    other = YAML.read_text().replace("name: patient", "name: other")
    answer = client.call(srv.RegisterSkillSet, "register_skill_set", yaml=other)
    assert answer.error_code == ErrorCode.INVALID_REQUEST
    assert answer.error_msg == "1 skill sets are registered, the most allowed: unregister one first"


@pytest.mark.counted
@pytest.mark.parametrize("client", [{"client_timeout_s": 1.5}], indirect=True)
def test_the_request_of_a_client_that_was_killed_is_freed(
    client: Client, start: Start, tmp_path: Path
) -> None:
    client.until(lambda: bool(client.stats))
    free = client.stats[-1].free_kv_tokens
    submit(client, "silent")  # its agent never sent a report, so its silence does not count
    script = tmp_path / "victim.py"
    script.write_text(CLIENT)
    victim = start(str(script), "orphan")
    client.until(lambda: "mf(50);" in victim.output or victim.popen.poll() is not None)
    client.until_listed({"silent": "blocked", "orphan": "blocked"})
    again = start(str(script), "anew")  # under the same name: it does not keep the orphan alive
    client.until(lambda: "mf(50);" in again.output or again.popen.poll() is not None)
    victim.popen.kill()
    client.until_listed({"silent": "blocked", "anew": "blocked"})
    client.call(srv.CancelRequest, "cancel_request", request_id="silent")
    client.call(srv.CancelRequest, "cancel_request", request_id="anew")
    client.until(lambda: client.stats[-1].free_kv_tokens == free)
    assert client.stats[-1].silent == 1


@pytest.mark.counted
@pytest.mark.parametrize("client", [{"client_timeout_s": 1.0}], indirect=True)
def test_a_robot_that_dies_in_the_middle_of_a_plan_is_given_up(client: Client) -> None:
    handle = client.send(client.goal("dying", skill_set="patient"))
    client.until(lambda: bool(client.feedback))
    started = msg.ExecutionReport(
        request_id="dying", agent="tester", state=int(ReportState.STARTED)
    )
    client.reports.publish(started)
    result = client.result(handle.get_result_async()).result
    assert result.error_code == ErrorCode.CLIENT_SILENT
    assert result.error_msg == "nothing was heard of 'tester' for 1 s"


@pytest.mark.parametrize("client", [{"result_timeout_s": 0.5, "max_results": 2}], indirect=True)
def test_results_are_kept_for_a_time_as_many_as_may_be(client: Client) -> None:
    for name in ("one", "two", "three"):
        assert submit(client, name).error_code == ErrorCode.NONE
    for name in ("one", "two", "three"):
        client.call(srv.CancelRequest, "cancel_request", request_id=name)

    def state(name: str) -> int:
        found: int = client.call(srv.GetResult, "get_result", request_id=name).state
        return found

    assert state("one") == srv.GetResult.Response.UNKNOWN, "the oldest went first"
    client.until(lambda: state("three") == srv.GetResult.Response.UNKNOWN)


def test_an_event_log_has_two_lives_and_no_other_file_becomes_one(
    start: Start, tmp_path: Path
) -> None:
    notes, event_log = tmp_path / "notes.md", tmp_path / "events.jsonl"
    notes.write_text("# Mine")
    refused = start("plan_server", engine="simulated", event_log=notes)
    assert refused.wait(60) == os.EX_CONFIG
    assert refused.output == (
        f"plan_server: cannot write the event log {notes}: its first line is no event, and files of"
        " another kind are not changed: name a new file\n"
    )
    assert notes.read_text() == "# Mine"
    for signum in (signal.SIGKILL, signal.SIGTERM):
        server = start("plan_server", engine="simulated", event_log=event_log)
        lives = [signal.SIGKILL, signal.SIGTERM].index(signum) + 1
        until_ready(server, event_log, lives)
        server.popen.send_signal(signum)
        server.wait(60)
    events = [json.loads(line)["event"] for line in event_log.read_text().splitlines()]
    assert events == ["opened", "ready", "opened", "ready"]


def until_ready(server: Process, event_log: Path, lives: int) -> None:
    end_s = time.monotonic() + 60
    while not event_log.exists() or event_log.read_text().count('"ready"') < lives:
        assert server.popen.poll() is None, server.output
        assert time.monotonic() < end_s
        time.sleep(0.02)


@pytest.mark.counted
def test_a_second_server_of_one_name_gives_way_to_the_first(client: Client, start: Start) -> None:
    late = start("plan_server", name_check_s=FIND_S, **PATIENT)
    assert late.wait(60) == os.EX_CONFIG
    assert "another plan server has the action /plan_server/plan in ROS domain" in late.output
    assert "(node /plan_server)" in late.output
    assert "Traceback" not in late.output
    assert submit(client, "still").error_code == ErrorCode.NONE


@pytest.mark.extended
def test_servers_of_other_names_and_namespaces_serve_beside_it(
    client: Client, start: Start
) -> None:
    other = start("plan_server", "-r", "__node:=other_server", name_check_s=FIND_S, **PATIENT)
    client.until(lambda: "ready" in other.output)
    assert "another server has the old name of the action, /plan" in other.output
    other.stop()
    assert other.popen.returncode == 0
    elsewhere = start("plan_server", "-r", "__ns:=/lab", **PATIENT)
    client.until(lambda: "ready" in elsewhere.output)
    elsewhere.stop()
    assert elsewhere.popen.returncode == 0
