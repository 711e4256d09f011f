"""Between ROS messages and the project's own nouns."""

from __future__ import annotations

from typing import Any

from timely_llm import msg
from timely_llm.action import Plan
from timely_llm.core.errors import RequestError
from timely_llm.core.request import (
    MAX_TASK_CHARACTERS,
    ErrorCode,
    ExecutionReport,
    PlanRequest,
    PlanResult,
    ReportState,
)
from timely_llm.core.segment import Segment, SkillCall, Value
from timely_llm.core.time_utility import NORMAL, TimeUtility
from timely_llm.engines.contract import StepResult


def plan_request(
    message: Plan.Goal | msg.PlanRequest, request_id: str, max_tokens: int
) -> PlanRequest:
    """Return the request in a goal or a flat message.

    Args:
        message: both types have the same fields.
        request_id: the message's own, or one made for a message that has none.
        max_tokens: used if the message has none.

    Raises:
        RequestError: a field is empty, too large or not a sane number.
    """
    given = message.time_utility
    # A message that was not filled in is all zeros.
    unset = given.beta == given.alpha == given.ert == 0.0
    return PlanRequest(
        request_id=request_id,
        agent=message.agent,
        skill_set=message.skill_set,
        task=message.task,
        time_utility=NORMAL if unset else TimeUtility(given.beta, given.alpha, given.ert),
        max_tokens=message.max_tokens or max_tokens,
        temperature=message.temperature,
        seed=message.seed,
        closed_loop=message.closed_loop,
    )


def request_message(request: PlanRequest) -> msg.PlanRequest:
    """Return a request as a flat message."""
    return msg.PlanRequest(
        request_id=request.request_id,
        agent=request.agent,
        skill_set=request.skill_set,
        task=request.task,
        time_utility=time_utility_message(request.time_utility),
        max_tokens=request.max_tokens,
        temperature=request.temperature,
        seed=request.seed,
        closed_loop=request.closed_loop,
    )


def time_utility_message(utility: TimeUtility) -> msg.TimeUtility:
    """Return a time-utility function as a message."""
    return msg.TimeUtility(beta=utility.beta, alpha=utility.alpha, ert=utility.ert_s)


def segment_message(segment: Segment) -> msg.Segment:
    """Return a segment as a message."""
    return msg.Segment(
        request_id=segment.request_id,
        agent=segment.agent,
        index=segment.index,
        epoch=segment.epoch,
        text=segment.text,
        calls=[skill_call_message(call) for call in segment.calls],
        predicted=segment.predicted_s,
        final=segment.final,
    )


def segment(message: msg.Segment) -> Segment:
    """Return the segment in a message; arguments of calls are texts, as they came."""
    calls = [SkillCall(c.name, tuple(c.arguments), c.predicted, c.blocking) for c in message.calls]
    return Segment(
        request_id=message.request_id,
        agent=message.agent,
        index=message.index,
        text=message.text,
        calls=tuple(calls),
        predicted_s=message.predicted,
        final=message.final,
        epoch=message.epoch,
    )


def skill_call_message(call: SkillCall) -> msg.SkillCall:
    """Return a skill call as a message."""
    return msg.SkillCall(
        name=call.name,
        arguments=[str(argument) for argument in call.arguments],
        predicted=call.predicted_s,
        blocking=call.blocking,
    )


def execution_report(message: msg.ExecutionReport) -> ExecutionReport:
    """Return the report in a message.

    Raises:
        RequestError: its state is none of the constants, or a name is too long.
    """
    try:
        state = ReportState(message.state)
    except ValueError as error:
        allowed = ", ".join(f"{s.value} ({s.name})" for s in ReportState)
        raise RequestError(
            f"execution report: state must be one of {allowed}, not {message.state}"
        ) from error
    return ExecutionReport(
        request_id=message.request_id,
        agent=message.agent,
        state=state,
        index=message.index,
        duration_s=message.duration,
        value=message.value[:MAX_TASK_CHARACTERS],
        epoch=message.epoch,
    )


def value_text(value: Value | None) -> str:
    """Return what a skill returned as reports carry it; empty if it returned nothing."""
    return "" if value is None else str(value)


def report_message(report: ExecutionReport) -> msg.ExecutionReport:
    """Return a report as a message."""
    return msg.ExecutionReport(
        request_id=report.request_id,
        agent=report.agent,
        state=int(report.state),
        index=report.index,
        epoch=report.epoch,
        duration=report.duration_s,
        value=report.value[:MAX_TASK_CHARACTERS],
    )


def plan_result(result: PlanResult) -> Plan.Result:
    """Return a result as the action's result message."""
    return Plan.Result(**_result_fields(result))


def result_message(result: PlanResult) -> msg.PlanResult:
    """Return a result as a flat message."""
    return msg.PlanResult(agent=result.agent, **_result_fields(result))


def _result_fields(result: PlanResult) -> dict[str, Any]:
    return {
        "error_code": int(result.error_code),
        "error_msg": result.error_msg,
        "request_id": result.request_id,
        "plan": result.plan,
        "segments": result.segments,
        "epoch": result.epoch,
        "response_time": result.response_s,
        "waiting_time": result.waiting_s,
        "utility": result.utility,
        "prompt_tokens": result.prompt_tokens,
        "generated_tokens": result.generated_tokens,
        "recomputed_tokens": result.recomputed_tokens,
    }


def result_of(message: Plan.Result | msg.PlanResult, agent: str) -> PlanResult:
    """Return the result in the action's result message, or in a flat one."""
    return PlanResult(
        request_id=message.request_id,
        agent=agent,
        error_code=error_code(message.error_code),
        error_msg=message.error_msg,
        plan=message.plan,
        segments=message.segments,
        response_s=message.response_time,
        waiting_s=message.waiting_time,
        utility=message.utility,
        prompt_tokens=message.prompt_tokens,
        generated_tokens=message.generated_tokens,
        recomputed_tokens=message.recomputed_tokens,
        epoch=message.epoch,
    )


def error_code(number: int) -> ErrorCode:
    """Return the code of a number; those that are not known here mean that the server failed."""
    return ErrorCode(number) if number in frozenset(ErrorCode) else ErrorCode.ENGINE_FAILED


def step_message(result: StepResult) -> msg.EngineStep:
    """Return what a step did as a message."""
    return msg.EngineStep(
        duration=result.duration_s,
        request_ids=list(result.computed),
        tokens=list(result.computed.values()),
    )
