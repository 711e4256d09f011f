"""The plan server as a client sees it: real processes, the embedded model."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import pytest
from action_msgs.msg import GoalStatus
from rclpy.action import ActionClient

from test.system.conftest import EXECUTORS, Process, Start
from test.system.ros_client import FIND, LONG, Client, serving, utility
from timely_llm import msg, srv
from timely_llm.action import Plan
from timely_llm.core.request import ErrorCode, ReportState
from timely_llm.resources import resource


@pytest.fixture(scope="module", params=EXECUTORS)
def client(start: Start, domain: int, request: pytest.FixtureRequest) -> Iterator[Client]:
    # Paced like a larger model, so that there is time to cancel in the middle of a plan.
    with serving(
        start, Client, domain, pace="rtx4090-llama3-8b", stats_period_s=0.2, executor=request.param
    ) as made:
        made.wait_for_server()
        yield made


def test_a_goal_is_answered_in_segments_that_make_up_the_plan(client: Client) -> None:
    status, result = client.plan(client.goal("whole"))
    assert status == GoalStatus.STATUS_SUCCEEDED
    assert (result.error_code, result.error_msg) == (ErrorCode.NONE, "")
    client.until(lambda: len(client.feedback) == result.segments)  # feedback may come later
    by_index = {segment.index: segment.text for segment in client.feedback}
    assert "".join(by_index[i] for i in sorted(by_index)) == result.plan
    assert result.plan.startswith("?s('cat')|s('cup'){")
    assert result.segments == len(by_index) >= 3
    assert client.feedback[-1].final
    assert 0 < result.response_time < 5
    assert result.waiting_time >= result.response_time
    assert result.prompt_tokens > 100
    assert result.generated_tokens > 5
    assert result.recomputed_tokens == 0
    client.until(lambda: len(client.of("whole")) == len(client.feedback))
    assert [s.text for s in client.of("whole")] == [s.text for s in client.feedback]


def test_a_segment_names_its_skills_and_how_long_they_take(client: Client) -> None:
    client.plan(client.goal("skills"))
    search = client.feedback[0]
    assert (search.agent, search.request_id, search.index) == ("tester", "skills", 0)
    assert [call.name for call in search.calls] == ["s", "s"]
    (argument,) = search.calls[0].arguments
    assert (argument.name, argument.type, argument.value) == ("object", argument.TEXT, "cat")
    assert search.predicted == pytest.approx(1.5275)


def test_a_request_by_topic_or_service_is_answered_on_the_segments_topic(client: Client) -> None:
    client.requests.publish(client.request("by-topic"))
    client.until(lambda: any(s.final for s in client.of("by-topic")))
    answer = client.call(srv.SubmitPlan, "submit_plan", request=client.request())
    assert answer.error_code == ErrorCode.NONE
    client.until(lambda: any(s.final for s in client.of(answer.request_id)))


@pytest.mark.parametrize(
    ("fields", "code", "words"),
    [
        ({"task": " "}, ErrorCode.INVALID_REQUEST, "the task is empty"),
        ({"task": "x" * 9000}, ErrorCode.INVALID_REQUEST, "at most 8000"),
        ({"agent": ""}, ErrorCode.INVALID_REQUEST, "agent must have 1 to 128 characters"),
        ({"skill_set": "boat"}, ErrorCode.UNKNOWN_SKILL_SET, "registered are arm, drone"),
        ({"given_plan": "tp();"}, ErrorCode.INVALID_REQUEST, "no plans written by hand"),
        ({"time_utility": utility(math.nan)}, ErrorCode.INVALID_REQUEST, "beta must be a finite"),
        ({"time_utility": utility(-1.0)}, ErrorCode.INVALID_REQUEST, "beta must be a finite"),
        ({"max_tokens": 100_000}, ErrorCode.INVALID_REQUEST, "max_tokens must be 1 to 4096"),
        ({"max_tokens": 3}, ErrorCode.TOO_LONG, "not complete after 3 tokens"),
    ],
)
def test_a_bad_goal_gets_a_code_and_one_sentence(
    client: Client, fields: dict[str, Any], code: ErrorCode, words: str
) -> None:
    status, result = client.plan(client.goal(**fields))
    assert status == GoalStatus.STATUS_ABORTED
    assert result.error_code == code
    assert words in result.error_msg
    assert "\n" not in result.error_msg


@pytest.mark.counted
def test_a_second_goal_with_the_same_id_is_refused_and_the_first_goes_on(client: Client) -> None:
    first = client.send(client.goal("same", task=LONG))
    second = client.result(client.action.send_goal_async(client.goal("same")))
    refused = client.result(second.get_result_async()).result
    assert refused.error_code == ErrorCode.DUPLICATE_REQUEST
    assert client.result(first.get_result_async()).result.error_code == ErrorCode.NONE


def test_a_goal_can_be_canceled_in_the_middle_of_its_plan(client: Client) -> None:
    handle = client.send(client.goal("cancel", task=LONG))
    client.until(lambda: bool(client.feedback))
    client.result(handle.cancel_goal_async())
    answer = client.result(handle.get_result_async())
    assert answer.status == GoalStatus.STATUS_CANCELED
    assert answer.result.error_code == ErrorCode.CANCELED
    assert not any(segment.final for segment in client.feedback)


def test_requests_are_listed_and_canceled_by_service(client: Client) -> None:
    client.send(client.goal("listed", task=LONG))
    client.until(lambda: bool(client.feedback))
    listed = client.call(srv.ListRequests, "list_requests")
    (status,) = listed.requests
    assert (status.request_id, status.agent, status.kind) == ("listed", "tester", status.PLAN)
    assert status.state in (status.RUNNING, status.SUSPENDED)
    assert status.delivered >= 1
    assert client.call(srv.CancelRequest, "cancel_request", request_id="listed").canceled
    gone = client.call(srv.CancelRequest, "cancel_request", request_id="listed")
    assert not gone.canceled
    assert "no request 'listed' is being served" in gone.error_msg
    assert not client.call(srv.ListRequests, "list_requests").requests


def test_the_old_name_of_the_action_works_and_is_logged(client: Client, start: Start) -> None:
    former: Any = ActionClient(client.node, Plan, "plan")
    client.until(former.server_is_ready)
    handle = client.result(former.send_goal_async(client.goal("by-the-old-name")))
    answer = client.result(handle.get_result_async())
    assert answer.result.error_code == ErrorCode.NONE
    words = "the action is called /plan_server/plan now, and the next release drops the old name"
    made: list[Process] = start.made  # type: ignore[attr-defined]
    client.until(lambda: any(words in process.output for process in made))
    former.destroy()


def test_a_robot_that_returned_gets_no_more_segments(client: Client) -> None:
    handle = client.send(client.goal("returned", task=LONG))
    client.until(lambda: bool(client.feedback))
    client.reports.publish(
        msg.ExecutionReport(request_id="returned", agent="tester", state=int(ReportState.RETURNED))
    )
    result = client.result(handle.get_result_async()).result
    assert result.error_code == ErrorCode.NONE
    assert not result.plan.endswith("->True;")


def test_a_skill_set_can_be_registered_while_serving(client: Client) -> None:
    yaml = resource("config/skill_sets/drone.yaml").read_text()
    other = yaml.replace("name: drone", "name: drone_two")
    answer = client.call(srv.RegisterSkillSet, "register_skill_set", yaml=other)
    assert (answer.error_code, answer.name) == (ErrorCode.NONE, "drone_two")
    assert answer.prompt_tokens > 100
    _, result = client.plan(client.goal(skill_set="drone_two"))
    assert result.error_code == ErrorCode.NONE
    broken = yaml.replace("minimum: 10", "minimum: 1000", 1)
    answer = client.call(srv.RegisterSkillSet, "register_skill_set", yaml=broken)
    assert answer.error_code == ErrorCode.INVALID_REQUEST
    assert "skills.mf.arguments.0" in answer.error_msg


def test_stats_count_and_memory_is_free_when_nothing_is_served(client: Client) -> None:
    client.stats.clear()
    client.until(lambda: bool(client.stats))
    before = client.stats[-1]
    client.plan(client.goal(task=FIND))
    client.until(lambda: client.stats[-1].ended == before.ended + 1)
    after = client.stats[-1]
    assert after.requests == before.requests + 1
    assert after.segments > before.segments
    assert after.steps > before.steps
    assert after.step_time > 0
    assert after.free_kv_tokens == before.free_kv_tokens
    assert after.recomputed_tokens == 0


def test_result_constants_are_the_error_codes() -> None:
    for code in ErrorCode:
        assert getattr(Plan.Result, code.name) == code
