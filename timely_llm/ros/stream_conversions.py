"""Between ROS messages and the nouns of conversations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from timely_llm import msg
from timely_llm.action import Converse
from timely_llm.core.echo import listed, quoted
from timely_llm.core.errors import RequestError
from timely_llm.core.listener import READING_WORDS_PER_S, SPEAKING_WORDS_PER_S
from timely_llm.core.slo import TEXT, VOICE, Slo, SloClass
from timely_llm.core.stream import (
    ChatMessage,
    StreamChunk,
    StreamRequest,
    StreamResult,
    check_messages,
)
from timely_llm.ros import conversions


def stream_request(
    message: Converse.Goal | msg.StreamRequest,
    request_id: str,
    max_tokens: int,
    slo_classes: Mapping[str, SloClass],
) -> StreamRequest:
    """Return the request in a goal or a flat message.

    Args:
        message: both types have the same fields, but for `feedback`.
        request_id: the message's own, or one made for a message that has none.
        max_tokens: used if the message has none.
        slo_classes: by name, `text` among them.

    Raises:
        RequestError: a field is empty, too large or not a sane number, or no service level has
            such a name.
    """
    given = slo_classes.get(message.slo_class or TEXT.name)
    if given is None:
        raise RequestError(
            f"unknown service level {quoted(message.slo_class)}: choose one of"
            f" {listed(list(slo_classes))}"
        )
    check_messages(len(message.messages) + bool(message.prompt))  # before each is looked at
    said = [ChatMessage(m.role, m.content) for m in message.messages]
    if message.prompt:
        said.append(ChatMessage("user", message.prompt))
    hears = SPEAKING_WORDS_PER_S if given.name == VOICE.name else READING_WORDS_PER_S
    return StreamRequest(
        request_id=request_id,
        agent=message.agent,
        messages=tuple(said),
        slo=_own(given.slo, ttft_s=message.ttft, tpot_s=message.tpot, deadline_s=message.deadline),
        weight=message.weight or given.weight,
        conversation=message.conversation,
        turn=message.turn,
        words_per_s=message.words_per_s or hears,
        max_tokens=message.max_tokens or max_tokens,
        temperature=message.temperature,
        seed=message.seed,
    )


def _own(slo: Slo, **values: float) -> Slo:
    """Return a service level with a request's own values; those that are 0 say nothing."""
    return replace(slo, **{name: value for name, value in values.items() if value != 0.0})


def stream_request_message(request: StreamRequest) -> msg.StreamRequest:
    """Return a request as a flat message that says everything, whatever classes there are."""
    return msg.StreamRequest(**request_fields(request), **slo_fields(request.slo))


def request_fields(request: StreamRequest) -> dict[str, Any]:
    """Return what goals and flat messages say of a request, without its service level."""
    return {
        "request_id": request.request_id,
        "agent": request.agent,
        "messages": [msg.ChatMessage(role=m.role, content=m.content) for m in request.messages],
        "weight": request.weight,
        "conversation": request.conversation,
        "turn": request.turn,
        "words_per_s": request.words_per_s,
        "max_tokens": request.max_tokens,
        "temperature": request.temperature,
        "seed": request.seed,
    }


def slo_fields(slo: Slo) -> dict[str, float]:
    """Return what goals and flat messages say of a service level of their own."""
    return {"ttft": slo.ttft_s, "tpot": slo.tpot_s, "deadline": slo.deadline_s}


def chunk_message(chunk: StreamChunk) -> msg.StreamChunk:
    """Return a piece of an answer as a message."""
    return msg.StreamChunk(
        request_id=chunk.request_id,
        agent=chunk.agent,
        index=chunk.index,
        text=chunk.text,
        final=chunk.final,
    )


def chunk_of(message: msg.StreamChunk) -> StreamChunk:
    """Return the piece of an answer in a message."""
    return StreamChunk(
        request_id=message.request_id,
        agent=message.agent,
        index=message.index,
        text=message.text,
        final=message.final,
    )


def converse_result(result: StreamResult) -> Converse.Result:
    """Return a result as the action's result message."""
    return Converse.Result(**_result_fields(result))


def stream_result_message(result: StreamResult) -> msg.StreamResult:
    """Return a result as a flat message."""
    return msg.StreamResult(agent=result.agent, **_result_fields(result))


def _result_fields(result: StreamResult) -> dict[str, Any]:
    return {
        "error_code": int(result.error_code),
        "error_msg": result.error_msg,
        "request_id": result.request_id,
        "text": result.text,
        "cut": result.cut,
        "ttft": result.ttft_s,
        "tpot": result.tpot_s,
        "largest_gap": result.largest_gap_s,
        "completion": result.completion_s,
        "stalled": result.stalled_s,
        "slo_met": result.slo_met,
        "prompt_tokens": result.prompt_tokens,
        "generated_tokens": result.generated_tokens,
        "recomputed_tokens": result.recomputed_tokens,
        "kept_tokens": result.kept_tokens,
    }


def stream_result_of(message: Converse.Result | msg.StreamResult, agent: str) -> StreamResult:
    """Return the result in the action's result message, or in a flat one."""
    return StreamResult(
        request_id=message.request_id,
        agent=agent,
        error_code=conversions.error_code(message.error_code),
        error_msg=message.error_msg,
        text=message.text,
        cut=message.cut,
        ttft_s=message.ttft,
        tpot_s=message.tpot,
        largest_gap_s=message.largest_gap,
        completion_s=message.completion,
        stalled_s=message.stalled,
        slo_met=message.slo_met,
        prompt_tokens=message.prompt_tokens,
        generated_tokens=message.generated_tokens,
        recomputed_tokens=message.recomputed_tokens,
        kept_tokens=message.kept_tokens,
    )
