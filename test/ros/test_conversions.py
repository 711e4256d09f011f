"""Conversions of messages of plans."""

import pytest

from timely_llm import msg
from timely_llm.action import Plan
from timely_llm.core.errors import RequestError
from timely_llm.core.request import (
    ErrorCode,
    ExecutionReport,
    PlanRequest,
    PlanResult,
    ReportState,
)
from timely_llm.core.segment import ArgumentType, Segment, SkillCall, SkillParameter
from timely_llm.core.step import StepResult
from timely_llm.core.time_utility import NORMAL, URGENT
from timely_llm.ros import conversions


def test_a_goal_and_a_flat_message_are_the_same_request() -> None:
    fields = {
        "agent": "a",
        "skill_set": "drone",
        "task": "fly",
        "time_utility": conversions.TIME_UTILITY.message(URGENT),
        "temperature": 0.5,
        "seed": 7,
    }
    goal = conversions.plan_request(Plan.Goal(**fields), "made-up", 99)
    flat = conversions.plan_request(msg.PlanRequest(**fields), "made-up", 99)
    assert goal == flat
    assert goal.request_id == "made-up"
    assert goal.time_utility == URGENT
    assert goal.max_tokens == 99
    assert (goal.temperature, goal.seed) == (0.5, 7)


def test_reports_survive_the_way_there_and_back() -> None:
    report = ExecutionReport("r", "a", ReportState.FINISHED, 3, 1.5, "42", 2)
    assert conversions.execution_report(conversions.EXECUTION_REPORT.message(report)) == report


def test_an_unknown_report_state_lists_the_known_ones() -> None:
    with pytest.raises(RequestError, match=r"0 \(ALIVE\), 1 \(STARTED\).*, not 77"):
        conversions.execution_report(msg.ExecutionReport(state=77))


def test_a_segment_keeps_its_calls() -> None:
    calls = (SkillCall("s", ("cat",), 1.5275), SkillCall("mf", (50,), 2.1744))
    message = conversions.SEGMENT.message(Segment("r", "a", 2, "text", calls, 3.7, True, 1))
    assert (message.request_id, message.agent, message.index, message.epoch) == ("r", "a", 2, 1)
    assert (message.text, message.predicted, message.final) == ("text", 3.7, True)
    assert [(c.name, [(a.type, a.value) for a in c.arguments]) for c in message.calls] == [
        ("s", [(ArgumentType.TEXT, "cat")]),
        ("mf", [(ArgumentType.INTEGER, "50")]),
    ]


def test_an_argument_that_is_not_of_its_type_stays_a_text() -> None:
    for kind, value in ((1, "many"), (2, "1,5"), (77, "3"), (1, "9" * 5000)):
        call = msg.SkillCall(name="go", arguments=[msg.SkillArgument(type=kind, value=value)])
        assert conversions.skill_call(call).arguments == (value,)


def test_segments_and_results_survive_the_way_there_and_back() -> None:
    parameters = (
        SkillParameter("cm", ArgumentType.INTEGER),
        SkillParameter("speed", ArgumentType.NUMBER),
        SkillParameter("shelf", ArgumentType.CHOICE),
        SkillParameter("word", ArgumentType.TEXT),
    )
    calls = (
        SkillCall("look", (), 0.5, True),
        SkillCall("go", (50, 0.5, "A1", "7"), 2.0, False, parameters),
    )
    segment = Segment("r", "a", 2, "text", calls, 2.5, True, 1, given=True)
    received = conversions.SEGMENT.read(conversions.SEGMENT.message(segment))
    assert received == segment
    assert received.calls[1].parameters == parameters
    assert segment.blocking
    result = PlanResult(
        "r", "a", ErrorCode.NO_ANSWER, "why", "p", 1, 0.2, 0.3, 1.0, 9, 9, 2, 3, given=True
    )
    message = conversions.PLAN_RESULT.message(result, Plan.Result)
    assert conversions.PLAN_RESULT.read(message, agent="a") == result
    flat = conversions.PLAN_RESULT.message(result)
    assert conversions.PLAN_RESULT.read(flat) == result


def test_a_request_survives_the_way_there_and_back() -> None:
    request = PlanRequest(
        "r", "a", "drone", "fly", URGENT, True, "mf(50);", max_tokens=77, temperature=0.5, seed=7
    )
    assert conversions.plan_request(conversions.PLAN_REQUEST.message(request), "r", 99) == request


def test_the_message_of_a_step_has_the_tokens_of_each_request() -> None:
    message = conversions.step_message(StepResult({"b": [5]}, {"b": 1, "a": 40}, 0.02))
    assert message.duration == 0.02
    assert [(share.request_id, share.tokens) for share in message.shares] == [("b", 1), ("a", 40)]


def test_a_result_carries_code_plan_times_and_counts() -> None:
    result = PlanResult("r", "a", ErrorCode.TOO_LONG, "why", "mf(50);", 1, 0.2, 0.3, 1.0, 100, 9, 2)
    message = conversions.PLAN_RESULT.message(result, Plan.Result)
    assert (message.error_code, message.error_msg, message.plan) == (7, "why", "mf(50);")
    assert (message.response_time, message.waiting_time, message.utility) == (0.2, 0.3, 1.0)
    assert (message.prompt_tokens, message.generated_tokens, message.recomputed_tokens) == (
        100,
        9,
        2,
    )


def test_a_message_without_a_time_utility_gets_the_default() -> None:
    message = msg.PlanRequest(agent="a", skill_set="drone", task="fly")
    assert conversions.plan_request(message, "r", 99).time_utility == NORMAL
