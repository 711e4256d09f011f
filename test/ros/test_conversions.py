"""Between messages and nouns."""

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
from timely_llm.core.segment import Segment, SkillCall, Value
from timely_llm.core.time_utility import NORMAL, URGENT
from timely_llm.engines.contract import StepResult
from timely_llm.ros import conversions


def test_a_goal_and_a_flat_message_are_the_same_request() -> None:
    fields = {
        "agent": "a",
        "skill_set": "drone",
        "task": "fly",
        "time_utility": conversions.time_utility_message(URGENT),
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
    assert conversions.execution_report(conversions.report_message(report)) == report


def test_an_unknown_report_state_lists_the_known_ones() -> None:
    with pytest.raises(RequestError, match=r"0 \(ALIVE\), 1 \(STARTED\).*, not 77"):
        conversions.execution_report(msg.ExecutionReport(state=77))


def test_a_segment_keeps_its_calls() -> None:
    calls = (SkillCall("s", ("cat",), 1.5275), SkillCall("mf", (50,), 2.1744))
    message = conversions.segment_message(Segment("r", "a", 2, "text", calls, 3.7, True, 1))
    assert (message.request_id, message.agent, message.index, message.epoch) == ("r", "a", 2, 1)
    assert (message.text, message.predicted, message.final) == ("text", 3.7, True)
    assert [(c.name, list(c.arguments)) for c in message.calls] == [("s", ["cat"]), ("mf", ["50"])]


def test_segments_and_results_survive_the_way_there_and_back() -> None:
    calls = (SkillCall("look", (), 0.5, True), SkillCall("mf", ("50",), 2.0))
    segment = Segment("r", "a", 2, "text", calls, 2.5, True, 1)
    assert conversions.segment(conversions.segment_message(segment)) == segment
    assert segment.blocking
    result = PlanResult("r", "a", ErrorCode.NO_ANSWER, "why", "p", 1, 0.2, 0.3, 1.0, 9, 9, 2, 3)
    assert conversions.result_of(conversions.plan_result(result), "a") == result
    flat = conversions.result_message(result)
    assert (conversions.result_of(flat, "a"), flat.agent) == (result, "a")


def test_a_request_survives_the_way_there_and_back() -> None:
    request = PlanRequest(
        "r", "a", "drone", "fly", URGENT, True, max_tokens=77, temperature=0.5, seed=7
    )
    assert conversions.plan_request(conversions.request_message(request), "r", 99) == request


def test_a_step_says_who_took_part_with_how_many_tokens() -> None:
    message = conversions.step_message(StepResult({"b": [5]}, {"b": 1, "a": 40}, 0.02))
    assert (message.duration, list(message.request_ids)) == (0.02, ["b", "a"])
    assert list(message.tokens) == [1, 40]


@pytest.mark.parametrize(
    ("value", "text"), [(None, ""), (True, "True"), (3, "3"), ("pen, cup", "pen, cup")]
)
def test_a_value_is_a_text_on_the_wire(value: Value | None, text: str) -> None:
    assert conversions.value_text(value) == text


def test_a_result_carries_code_plan_times_and_counts() -> None:
    result = PlanResult("r", "a", ErrorCode.TOO_LONG, "why", "mf(50);", 1, 0.2, 0.3, 1.0, 100, 9, 2)
    message = conversions.plan_result(result)
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
