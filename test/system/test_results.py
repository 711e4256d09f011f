"""A client that missed the result of a request can ask for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from action_msgs.msg import GoalStatus, GoalStatusArray

from test.system.conftest import ROOT, Start
from test.system.ros_client import PATIENT, WAIT_S, Client, serving
from timely_llm import srv
from timely_llm.core.request import ErrorCode
from timely_llm.ros.client import inquiries
from timely_llm.ros.client.plan import PlanClient, PlanClientError, PlanTimeout
from timely_llm.ros.client.talk import TalkClient

DRONE = PATIENT | {"skill_sets": f"[{ROOT / 'test/system/patrol.yaml'}]"}
Response = srv.GetResult.Response
VICTIM = """
import time
from timely_llm.ros.client.plan import PlanClient
from timely_llm.ros.client.talk import TalkClient
client, talker = PlanClient("victim"), TalkClient("victim")
task = client.submit("Look.", request_id="earlier", closed_loop=False)
answer = talker.converse("What can you do?", request_id="earlier talk")
next(task.segments())
next(answer.chunks())
print("both have begun", flush=True)
time.sleep(600)
"""


@pytest.fixture(scope="module")
def server(start: Start, domain: int) -> Iterator[Client]:
    with serving(start, Client, domain, **DRONE) as made:
        yield made


def state_of(client: Client, request_id: str) -> Any:
    return client.call(srv.GetResult, "get_result", request_id=request_id)


def test_a_client_that_was_killed_and_restarted_gets_its_results(
    server: Client, start: Start, domain: int, tmp_path: Path
) -> None:
    script = tmp_path / "victim.py"
    script.write_text(VICTIM)
    victim = start(str(script))
    server.until(lambda: "both" in victim.output or victim.popen.poll() is not None)
    assert victim.popen.poll() is None, victim.output
    victim.popen.kill()
    with PlanClient("victim", domain=domain, find_s=WAIT_S) as client:
        result = client.result_of("earlier", WAIT_S)
        assert (result.error_code, result.agent) == (ErrorCode.NONE, "victim")
        assert result.plan == "mf(50);tc(90);tp();mf(50);->True;"
        assert client.result_of("earlier", WAIT_S) == result, (
            "a second question has the same answer"
        )
        with pytest.raises(PlanClientError, match="does not know how the request 'never' ended"):
            client.result_of("never", WAIT_S)
    with TalkClient("victim", domain=domain, find_s=WAIT_S) as talker:
        answer = talker.result_of("earlier talk", WAIT_S)
        assert answer.error_code is ErrorCode.NONE
        assert answer.text


def test_the_service_returns_the_state_of_a_request(server: Client, domain: int) -> None:
    assert state_of(server, "unknown").state == Response.UNKNOWN
    with PlanClient("robot", domain=domain, find_s=WAIT_S) as client:
        task = client.submit("Look.", request_id="standing")
        next(task.segments(WAIT_S))
        assert state_of(server, "standing").state == Response.SERVED
        with pytest.raises(PlanTimeout, match="request 'standing' did not end"):
            client.result_of("standing", 0.3)
        task.returned()
        result = task.result(WAIT_S)
        assert client.result_of("standing", WAIT_S) == result
    answer = state_of(server, "standing")
    assert answer.state == Response.PLAN
    assert answer.plan.agent == "robot"


def test_a_refusal_hides_no_result(server: Client) -> None:
    handle = server.send(server.goal("twice", closed_loop=True))
    server.until(lambda: bool(server.feedback))
    _, refusal = server.plan(server.goal("twice"))
    assert refusal.error_code == ErrorCode.DUPLICATE_REQUEST
    assert state_of(server, "twice").state == Response.SERVED
    server.result(handle.cancel_goal_async())
    ended = server.result(handle.get_result_async()).result
    kept = state_of(server, "twice")
    assert kept.plan.error_code == ended.error_code == ErrorCode.CANCELED
    _, refusal = server.plan(server.goal("bad", skill_set="boat"))
    assert refusal.error_code == ErrorCode.UNKNOWN_SKILL_SET
    assert state_of(server, "bad").state == Response.UNKNOWN


def test_an_action_client_may_ask_for_a_result_late(server: Client) -> None:
    listed: list[set[bytes]] = []

    def note(array: GoalStatusArray) -> None:
        listed.append({bytes(one.goal_info.goal_id.uuid) for one in array.status_list})

    server.node.create_subscription(GoalStatusArray, "plan_server/plan/_action/status", note, 10)
    late = server.send(server.goal("late"))
    refused = server.send(server.goal("late refusal", skill_set="boat"))
    names = {bytes(handle.goal_id.uuid) for handle in (late, refused)}
    server.until(lambda: state_of(server, "late").state == Response.PLAN)

    def forgotten() -> bool:
        server.plan(server.goal(skill_set="boat"))  # states are published when one changes
        return bool(listed) and not names & listed[-1]

    server.until(forgotten)
    answer = server.result(late.get_result_async())
    assert answer.status == GoalStatus.STATUS_SUCCEEDED
    assert answer.result.plan == "mf(50);tc(90);tp();mf(50);->True;"
    answer = server.result(refused.get_result_async())
    assert answer.status == GoalStatus.STATUS_ABORTED
    assert answer.result.error_code == ErrorCode.UNKNOWN_SKILL_SET


def test_a_client_asks_for_an_end_that_the_network_lost(
    server: Client, domain: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inquiries, "MISSED_S", 0.2)
    with PlanClient("robot", domain=domain, find_s=WAIT_S) as client:
        task = client.submit("Look.")
        next(task.segments(WAIT_S))
        lose: Callable[[], None] = client._node._action._client._pending_result_requests.clear
        client._do(lose).result(WAIT_S)
        task.returned()
        assert task.result(WAIT_S).error_code is ErrorCode.NONE
