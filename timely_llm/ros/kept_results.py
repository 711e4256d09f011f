"""The service that tells how a request ended: both of its ends."""

from __future__ import annotations

from timely_llm import srv
from timely_llm.core.request import PlanResult, Result
from timely_llm.core.stream import StreamResult
from timely_llm.ros import conversions, stream_conversions


def answer(
    response: srv.GetResult.Response, served: bool, result: Result | None
) -> srv.GetResult.Response:
    """Fill in what a server knows of a request.

    Args:
        response: filled in and returned.
        served: the request is being served; what is kept is of an older one with its id.
        result: how it ended; None: that is not known.
    """
    if served:
        response.state = response.SERVED
    elif isinstance(result, PlanResult):
        response.state = response.PLAN
        response.plan = conversions.result_message(result)
    elif isinstance(result, StreamResult):
        response.state = response.ANSWER
        response.answer = stream_conversions.stream_result_message(result)
    else:
        response.state = response.UNKNOWN
    return response


def result_in(response: srv.GetResult.Response) -> Result | None:
    """Return how a request ended, None if it has not, or if that is not known."""
    if response.state == response.PLAN:
        return conversions.result_of(response.plan, response.plan.agent)
    if response.state == response.ANSWER:
        return stream_conversions.stream_result_of(response.answer, response.answer.agent)
    return None
