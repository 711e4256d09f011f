"""No call and no message ends a node: real processes, both executors."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from action_msgs.msg import GoalStatus
from rcl_interfaces.msg import Parameter, ParameterValue
from rcl_interfaces.srv import GetParameters, SetParameters, SetParametersAtomically

from test.system.conftest import EXECUTORS, Process, Start
from test.system.ros_client import PATIENT, Client, utility
from timely_llm import msg, srv
from timely_llm.core.request import ErrorCode

pytestmark = pytest.mark.faults

ODD = Parameter(name="policy", value=ParameterValue(type=42))


class Near(Client):
    """A client that sees what its server logs."""

    server: Process


@pytest.fixture(scope="module", params=EXECUTORS)
def client(start: Start, domain: int, request: pytest.FixtureRequest) -> Iterator[Near]:
    words: list[str] = []
    for name, value in (PATIENT | {"executor": request.param}).items():
        words += ["-p", f"{name}:={value}"]
    made = Near(domain)
    made.server = start("test/system/faulty_server.py", "--ros-args", *words)
    made.wait_for_action()
    yield made
    made.close()
    made.server.stop()
    assert made.server.popen.returncode == 0
    assert "Traceback" not in made.server.output


def serves(client: Client) -> None:
    """Find out whether an urgent plan is still served."""
    handle = client.send(client.goal(skill_set="patient", time_utility=utility(2.0, ert=0.2)))
    client.until(lambda: bool(client.feedback))
    client.result(handle.cancel_goal_async())
    assert client.result(handle.get_result_async()).result.error_code == ErrorCode.CANCELED


def refusal(answer: Any) -> str:
    assert answer.error_code == ErrorCode.ENGINE_FAILED
    assert "\n" not in answer.error_msg
    text: str = answer.error_msg
    return text


def test_a_parameter_of_no_type_is_refused(client: Client) -> None:
    answer = client.call(SetParameters, "set_parameters", parameters=[ODD, ODD])
    assert [result.successful for result in answer.results] == [False, False]
    assert "42 is not a valid" in answer.results[0].reason
    answer = client.call(SetParametersAtomically, "set_parameters_atomically", parameters=[ODD])
    assert not answer.result.successful
    client.call(GetParameters, "get_parameters", names=["no_such"])
    serves(client)


def test_other_nodes_live_on_too(start: Start, client: Client, tmp_path: Path) -> None:
    recorder = start("recorder", output=str(tmp_path / "bag"))
    try:
        set_parameters: Any = client.node.create_client(SetParameters, "recorder/set_parameters")
        assert set_parameters.wait_for_service(30)
        for _ in range(2):
            sent = set_parameters.call_async(SetParameters.Request(parameters=[ODD]))
            assert not client.result(sent).results[0].successful
        client.node.destroy_client(set_parameters)
    finally:  # it would answer for the recorder of the next test
        recorder.stop()
    assert "Traceback" not in recorder.output
    assert "a call of recorder/set_parameters failed: ValueError" in recorder.output


def test_skill_sets_that_are_no_text_or_too_much_are_refused_in_one_sentence(
    client: Client,
) -> None:
    merges = "a0: &a0 {k: v}\n" + "".join(
        f"a{i}: &a{i} {{<<: [*a{i - 1}, *a{i - 1}]}}\n" for i in range(1, 30)
    )
    rule = "name: cart\nlanguage: regex\nprompt: go\nrules: ['(?P<x>(?&x)?a);']"
    for yaml, words in (
        ('name: cart\nprompt: "\\uD800"', "is not valid YAML: "),
        ('name: cart\nprompt: "a\\0"', r"the text at prompt holds '\x00' at place 1"),
        (merges, "skill set is nested more than 16 levels deep, the most allowed"),
        (
            "".join(f"k{i}: v\n" for i in range(6000)),
            "skill set has more than 10000 values and keys",
        ),
        ("[" * 100_000, "skill set is nested more than 16 levels deep"),
        ("- a\n" * 1_000_000, "skill set has 4000000 characters, at most 262144 are allowed"),
        (rule, "a rule cannot have '(?&x)?a);'"),
    ):
        answer = client.call(srv.RegisterSkillSet, "register_skill_set", yaml=yaml)
        assert answer.error_code == ErrorCode.INVALID_REQUEST
        assert words in answer.error_msg
        assert "\n" not in answer.error_msg
    serves(client)


def test_a_skill_set_is_unregistered_and_registered_anew(client: Client) -> None:
    text = (
        "name: cart\nprompt: {}\nskills: {{go: {{description: go, duration: {{polynomial: [1]}}}}}}"
    )
    register, forget = srv.RegisterSkillSet, srv.UnregisterSkillSet
    assert not client.call(register, "register_skill_set", yaml=text.format("one")).error_code
    refused = client.call(register, "register_skill_set", yaml=text.format("other"))
    assert refused.error_msg.endswith("unregister it first, or choose another name")
    assert not client.call(forget, "unregister_skill_set", name="cart").error_code
    assert not client.call(register, "register_skill_set", yaml=text.format("other")).error_code
    assert not client.call(forget, "unregister_skill_set", name="cart").error_code
    unknown = client.call(forget, "unregister_skill_set", name="cart")
    assert unknown.error_code == ErrorCode.UNKNOWN_SKILL_SET
    assert unknown.error_msg == "unknown skill set 'cart': registered are patient"


def test_a_goal_without_a_possible_request_ends(client: Client) -> None:
    for agent, fault in (("evil", "plan_request"), ("evil-accepted", "request_message")):
        status, result = client.plan(client.goal(agent=agent, skill_set="patient"))
        assert status == GoalStatus.STATUS_ABORTED
        assert f"a fault in {fault}" in refusal(result)
    serves(client)


def test_a_goal_without_a_possible_result_ends(client: Client) -> None:
    status, result = client.plan(client.goal(agent="evil-result", skill_set="boat"))
    assert status == GoalStatus.STATUS_ABORTED
    assert "a fault in plan_result" in refusal(result)
    handle = client.send(client.goal("slow", agent="evil-result", skill_set="patient"))
    client.call(srv.CancelRequest, "cancel_request", request_id="slow")
    assert "a fault in plan_result" in refusal(client.result(handle.get_result_async()).result)
    serves(client)


def test_a_service_that_fails_answers(client: Client) -> None:
    request = client.request()
    request.agent = "evil"
    answer = client.call(srv.SubmitPlan, "submit_plan", request=request)
    assert "a fault in plan_request" in refusal(answer)
    answer = client.call(srv.UnregisterSkillSet, "unregister_skill_set", name="evil")
    assert "a fault in unregister" in refusal(answer)
    answer = client.call(srv.RegisterSkillSet, "register_skill_set", yaml="evil")
    assert "a fault in register" in refusal(answer)
    serves(client)


def test_a_message_that_fails_is_logged_and_ends_nothing(client: Near) -> None:
    request = client.request()
    request.agent = "evil"
    for _ in range(3):
        client.requests.publish(request)
        client.reports.publish(msg.ExecutionReport(agent="evil"))
    serves(client)
    for name in ("plan_request", "execution_report"):
        line = f"failed: ZeroDivisionError: a fault in {name} \\ud800"
        client.until(lambda line=line: line in client.server.output)  # type: ignore[misc]
