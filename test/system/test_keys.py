"""Keys of agents: only the agent that owns a request can make it, report for it or cancel it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rcl_interfaces.srv import GetParameters
from rclpy.action import ActionClient

from test.system.conftest import Process, Start
from test.system.ros_client import PATIENT, Client, serving
from timely_llm import msg, srv
from timely_llm.action import Converse
from timely_llm.core.request import ErrorCode, ExecutionReport, ReportState
from timely_llm.dispatch.settings import NO_SERVER
from timely_llm.identity.keys import new_key, read_key
from timely_llm.identity.signature import Signer
from timely_llm.ros.client.plan import PlanClient, PlanClientError
from timely_llm.ros.client.talk import TalkClient
from timely_llm.ros.identity.messages import sign


class KeyClient(Client):
    """A client that can sign for an agent."""

    def signed(self, message: Any, key_folder: Path, agent: str = "tester") -> Any:
        """Sign a message as a client of an agent that has just started."""
        asked = GetParameters.Request(names=["challenge"])
        client: Any = self.node.create_client(GetParameters, "plan_server/get_parameters")
        assert client.wait_for_service(60)
        challenge = self.result(client.call_async(asked)).values[0].string_value
        self.node.destroy_client(client)
        assert len(challenge) == 32
        return sign(message, Signer(read_key(key_folder / f"{agent}.key")), challenge)

    def submit(self, request: msg.PlanRequest) -> ErrorCode:
        answer = self.call(srv.SubmitPlan, "submit_plan", request=request)
        assert bool(answer.error_msg) == bool(answer.error_code)
        return ErrorCode(answer.error_code)

    def plan_for(self, request_id: str, agent: str = "tester") -> msg.PlanRequest:
        return msg.PlanRequest(
            request_id=request_id, agent=agent, skill_set="patient", task="Look.", closed_loop=True
        )

    def until_said(self, server: Process, words: str) -> None:
        self.until(lambda: words in server.output)


@pytest.fixture(scope="module")
def client(start: Start, domain: int, key_folder: Path) -> Iterator[KeyClient]:
    parameters = PATIENT | {"agent_keys": str(key_folder), "answer_timeout_s": 600.0}
    with serving(start, KeyClient, domain, **parameters) as made:
        yield made


@pytest.fixture
def server(start: Start, client: KeyClient) -> Process:
    made: list[Process] = start.made  # type: ignore[attr-defined]
    return made[0]


def test_a_request_without_its_agents_signature_is_refused(
    client: KeyClient, key_folder: Path
) -> None:
    assert client.submit(client.plan_for("r")) is ErrorCode.NOT_AUTHENTICATED
    other = client.signed(client.plan_for("r"), key_folder, "ann")
    assert client.submit(other) is ErrorCode.NOT_AUTHENTICATED
    _, result = client.plan(client.goal(skill_set="patient"))
    assert result.error_code == ErrorCode.NOT_AUTHENTICATED
    assert result.error_msg == "a message of 'tester' must be signed with the agent's key"
    assert client.listed() == {}


def test_an_inflated_field_is_refused(client: KeyClient, key_folder: Path) -> None:
    request = client.signed(client.plan_for("r"), key_folder)
    request.time_utility.beta = 1000.0
    assert client.submit(request) is ErrorCode.NOT_AUTHENTICATED
    goal = client.signed(client.goal("r", skill_set="patient"), key_folder)
    goal.max_tokens = 4000
    assert client.plan(goal)[1].error_code == ErrorCode.NOT_AUTHENTICATED


def test_a_signed_request_is_served_and_a_replayed_one_is_refused(
    client: KeyClient, key_folder: Path
) -> None:
    request = client.signed(client.plan_for("r"), key_folder)
    assert client.submit(request) is ErrorCode.NONE
    assert client.submit(request) is ErrorCode.NOT_AUTHENTICATED
    cancel(client, key_folder, "r")
    assert client.submit(request) is ErrorCode.NOT_AUTHENTICATED


def test_an_agent_without_a_key_needs_no_signature(client: KeyClient) -> None:
    assert client.submit(client.plan_for("guest", "guest")) is ErrorCode.NONE
    answer = client.call(srv.CancelRequest, "cancel_request", request_id="guest")
    assert answer.canceled and answer.error_code == ErrorCode.NONE


def cancel(client: KeyClient, key_folder: Path, request_id: str, agent: str = "tester") -> Any:
    asked = srv.CancelRequest.Request(request_id=request_id, agent=agent)
    made = client.signed(asked, key_folder, agent)
    return client.call(
        srv.CancelRequest, "cancel_request", request_id=request_id, agent=agent,
        signature=made.signature,
    )  # fmt: skip


def test_a_forged_cancellation_is_refused(client: KeyClient, key_folder: Path) -> None:
    assert client.submit(client.signed(client.plan_for("r"), key_folder)) is ErrorCode.NONE
    forged = client.call(srv.CancelRequest, "cancel_request", request_id="r", agent="tester")
    assert not forged.canceled and forged.error_code == ErrorCode.NOT_AUTHENTICATED
    nameless = client.call(srv.CancelRequest, "cancel_request", request_id="r")
    assert nameless.error_msg == (
        "only 'tester' may end its request, with a call that its key signs"
    )
    other = cancel(client, key_folder, "r", "ann")
    assert not other.canceled and other.error_code == ErrorCode.NOT_AUTHENTICATED
    assert "r" in client.listed()
    own = cancel(client, key_folder, "r")
    assert own.canceled and own.error_code == ErrorCode.NONE and own.error_msg == ""
    gone = cancel(client, key_folder, "r")
    assert not gone.canceled and gone.error_msg == "no request 'r' is being served"


def test_a_goal_of_an_agent_with_a_key_is_not_canceled_by_the_actions_own_message(
    client: KeyClient, key_folder: Path
) -> None:
    handle = client.send(client.signed(client.goal("goal", skill_set="patient"), key_folder))
    refused = client.result(handle.cancel_goal_async())
    assert not refused.goals_canceling
    assert "goal" in client.listed()
    result = handle.get_result_async()
    assert cancel(client, key_folder, "goal").canceled
    assert client.result(result).result.error_code == ErrorCode.CANCELED


def test_forged_and_replayed_reports_change_nothing(
    client: KeyClient, key_folder: Path, server: Process
) -> None:
    assert client.submit(client.signed(client.plan_for("r"), key_folder)) is ErrorCode.NONE
    client.until_listed({"r": "blocked"})
    report = msg.ExecutionReport(request_id="r", agent="tester", state=int(ReportState.RETURNED))
    client.until(lambda: client.reports.get_subscription_count() > 0)
    client.reports.publish(report)
    client.until_said(server, "a message of 'tester' must be signed")
    client.reports.publish(client.signed(report, key_folder, "ann"))
    client.until_said(server, "the signature of a message of 'tester' is wrong")
    assert client.listed() == {"r": "blocked"}
    client.reports.publish(client.signed(report, key_folder))
    client.until_listed({})
    assert client.submit(client.signed(client.plan_for("r"), key_folder)) is ErrorCode.NONE
    client.until_listed({"r": "blocked"})
    client.reports.publish(report)
    client.until_said(server, "it came before")
    assert client.listed() == {"r": "blocked"}
    cancel(client, key_folder, "r")


def test_a_conversation_of_another_agent_cannot_be_continued(
    client: KeyClient, key_folder: Path, domain: int
) -> None:
    talk: ActionClient[Any, Any, Any] = ActionClient(client.node, Converse, "plan_server/converse")
    assert talk.wait_for_server(60)
    with TalkClient("ann", key_file=key_folder / "ann.key", domain=domain) as ann:
        assert ann.converse("Hello.", conversation="c").result(60).error_code is ErrorCode.NONE
        goal = Converse.Goal(agent="ann", prompt="And?", conversation="c", turn=1)
        handle = client.result(talk.send_goal_async(goal))
        result = client.result(handle.get_result_async()).result
        assert result.error_code == ErrorCode.NOT_AUTHENTICATED
        again = ann.converse("Go on.", conversation="c", turn=1).result(60)
        assert again.error_code is ErrorCode.NONE
    talk.destroy()


def test_clients_with_a_key_plan_report_cancel_and_start_again(
    client: KeyClient, key_folder: Path, domain: int
) -> None:
    key = key_folder / "tester.key"
    for number in range(2):
        with PlanClient("tester", "patient", key_file=key, domain=domain) as robot:
            done = robot.execute(
                "Look.", {"mf": lambda cm: None, "tc": lambda degrees: "a cat",
                          "tp": lambda: None}, timeout_s=60,
            )  # fmt: skip
            assert done.calls, number
            task = robot.submit("Look.", request_id=f"waits {number}")
            client.until(lambda: f"waits {number}" in client.listed())  # noqa: B023
            task.cancel(60)
            assert task.result(60).error_code is ErrorCode.CANCELED
    with PlanClient("tester", "patient", domain=domain) as bare:
        assert bare.submit("Look.").result(60).error_code is ErrorCode.NOT_AUTHENTICATED
    with pytest.raises(PlanClientError, match="is of the agent 'tester', not of 'ann'"):
        PlanClient("ann", "patient", key_file=key, domain=domain)


def test_where_keys_are_required_an_agent_without_one_is_refused_and_a_restart_ends_no_client(
    client: KeyClient, start: Start, key_folder: Path, domain: int
) -> None:
    parameters = PATIENT | {"agent_keys": str(key_folder), "require_auth": True}
    key = key_folder / "tester.key"
    with PlanClient("tester", "patient", "strict", key_file=key, domain=domain, find_s=60) as robot:
        for _ in range(2):  # each start of the server has another challenge
            strict = start("plan_server", "-r", "__node:=strict", **parameters)
            task = robot.submit("Look.")
            assert next(task.segments(60)).index == 0
            task.returned()
            assert task.result(60).error_code is ErrorCode.NONE
            with PlanClient("guest", "patient", "strict", domain=domain, find_s=60) as guest:
                refused = guest.submit("Look.").result(60)
            assert refused.error_code is ErrorCode.NOT_AUTHENTICATED
            client.until(lambda: not robot._node._held)
            assert "signature" not in strict.output, "a report had another server's challenge"
            strict.stop()
            client.until(lambda: not robot._node.watch.fits)
            robot.report(ExecutionReport("", "tester", ReportState.ALIVE))
            client.until(lambda: bool(robot._node._held))
            client.until(lambda: not robot._node.watch._liveness.known)  # it counts as lost
            assert robot._node._held, "a report for the next server was lost with this one"


def test_a_server_with_replicas_checks_keys_too(
    client: KeyClient, start: Start, key_folder: Path, domain: int
) -> None:
    parameters = PATIENT | {"agent_keys": str(key_folder), "replicas": 2}
    many = start("plan_server", "-r", "__node:=many", **parameters)
    key = key_folder / "tester.key"
    with (
        PlanClient("tester", "patient", "many", key_file=key, domain=domain, find_s=60) as robot,
        PlanClient("tester", "patient", "many", domain=domain, find_s=60) as forger,
    ):
        assert forger.submit("Look.").result(60).error_code is ErrorCode.NOT_AUTHENTICATED
        task = robot.submit("Look.", request_id="own")
        assert next(task.segments(60)).index == 0
        forger._do(lambda: forger._node._call_cancel("own")).result(60)
        assert robot.running() == ("own",)
        assert task.cancel(60)
        assert task.result(60).error_code is ErrorCode.CANCELED
    many.stop()


@pytest.mark.extended
def test_a_robot_with_a_key_reaches_no_server_that_checks_keys_through_a_dispatcher(
    client: KeyClient, start: Start, key_folder: Path, domain: int
) -> None:
    parameters = PATIENT | {"agent_keys": str(key_folder)}
    server = start("plan_server", "-r", "__ns:=/d/s1", **parameters)
    dispatcher = start("dispatch.node", "-r", "__ns:=/d", name_check_s=0.0)
    words = "server /d/s1/plan_server checks the keys of agents, and a dispatcher cannot sign"
    client.until_said(dispatcher, words)
    client.until_said(dispatcher, "ready: ")
    key = key_folder / "tester.key"
    with PlanClient(
        "tester",
        "patient",
        "/d/plan_server",
        key_file=key,
        domain=domain,
        find_s=60,
        accept_unsigned=True,
    ) as robot:
        refused = robot.submit("Look.").result(60)
        assert (refused.error_code, refused.error_msg) == (ErrorCode.INACTIVE, NO_SERVER)
        assert "joins" not in dispatcher.output
        other = start("plan_server", "-r", "__ns:=/d/s2", **PATIENT)
        client.until_said(dispatcher, "server /d/s2/plan_server joins")
        task = robot.submit("Look.")
        assert next(task.segments(60)).index == 0
        task.cancel(60)
    with PlanClient(
        "tester", "patient", "/d/plan_server", key_file=key, domain=domain, find_s=60
    ) as strict:
        for _ in range(2):
            with pytest.raises(PlanClientError, match="checks no keys and signs nothing"):
                strict.submit("Look.")
    for process in (dispatcher, other, server):
        process.stop()


def test_keys_that_cannot_be_used_end_the_start_with_one_sentence(
    start: Start, tmp_path: Path
) -> None:
    key = new_key("ann", tmp_path / "keys")
    key.chmod(0o644)
    for parameters, words in (
        ({"agent_keys": str(key)}, "other users may open"),
        ({"require_auth": True}, "require_auth needs the keys of agents"),
    ):
        refused = start("plan_server", "-r", "__node:=refused", **(PATIENT | parameters))
        assert refused.wait(60) == os.EX_CONFIG
        assert words in refused.output and "Traceback" not in refused.output
