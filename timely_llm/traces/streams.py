"""Conversations to and from this package's messages, without ROS: types from the .msg files."""

from __future__ import annotations

from typing import Any

from timely_llm.core.request import MAX_MESSAGE_CHARACTERS, ChatMessage, StreamRequest
from timely_llm.core.slo import (
    READING_WORDS_PER_S,
    SLO_CLASSES,
    SPEAKING_WORDS_PER_S,
    TEXT,
    VOICE,
    Slo,
)
from timely_llm.engines.simulated import ScriptTokenizer
from timely_llm.traces.model import Conversation
from timely_llm.traces.recordings.messages import stamp, type_store, unsigned

STREAM_TYPE = "timely_llm/msg/StreamRequest"
STREAM_RESULT_TYPE = "timely_llm/msg/StreamResult"
STREAM_TOPIC = "/plan_server/stream_requests"
ACCEPTED_STREAMS = "/streams"
"""Suffix of the topic of accepted conversations."""

_FILLER = "."
_CLASSES = {made.name: made for made in SLO_CLASSES}


def conversation_of(
    message: Any, name: str, arrival_s: float, prompt_tokens: int = 0, output_tokens: int = 0
) -> Conversation:
    """Return the conversation of an untrusted StreamRequest.

    A named service level is the paper's of that name, or that of text. A recording does not have
    the server's own levels, but its accepted requests have all values.

    Args:
        message: the request; in a later turn, it has only the new messages.
        name: the conversation's id.
        arrival_s: arrival, seconds after the trace's origin.
        prompt_tokens: tokens of the prompt; 0: counted by the simulated model's tokenizer.
        output_tokens: tokens of the answer; 0: the largest number that the request allows.

    Raises:
        TraceError: a value is not possible.
        RequestError: its service level is not possible.
    """
    given = _CLASSES.get(message.slo_class, TEXT)
    slo = Slo(
        message.ttft or given.slo.ttft_s,
        message.tpot or given.slo.tpot_s,
        message.deadline or given.slo.deadline_s,
    )
    texts = [one.content for one in message.messages]
    text = "\n".join([*texts, message.prompt] if message.prompt else texts)
    return Conversation(
        id=name,
        arrival_s=arrival_s,
        agent=message.agent,
        prompt_tokens=prompt_tokens or len(ScriptTokenizer().encode(text)),
        output_tokens=output_tokens or message.max_tokens or StreamRequest.max_tokens,
        ttft_s=slo.ttft_s,
        tpot_s=slo.tpot_s,
        deadline_s=slo.deadline_s,
        weight=message.weight or given.weight,
        text=text,
        max_tokens=message.max_tokens,
    )


def request_of(conversation: Conversation) -> StreamRequest:
    """Return the request of a conversation for a live server.

    An unknown text is replaced by dots, about as many tokens as the prompt. The conversation's
    tokens bound the answer.

    Raises:
        RequestError: no server admits it.
    """
    # One character over the limit is enough for a refusal.
    tokens = min(max(conversation.prompt_tokens, 1), MAX_MESSAGE_CHARACTERS + 1)
    prompt = conversation.text or _FILLER * tokens
    speech = conversation.tpot_s >= VOICE.slo.tpot_s
    return StreamRequest(
        conversation.id,
        conversation.agent,
        (ChatMessage("user", prompt),),
        Slo(conversation.ttft_s, conversation.tpot_s, conversation.deadline_s),
        conversation.weight,
        words_per_s=SPEAKING_WORDS_PER_S if speech else READING_WORDS_PER_S,
        max_tokens=conversation.output_tokens,
    )


def stream_message(request: StreamRequest, time_ns: int = 0) -> Any:
    """Return a request as a StreamRequest of rosbags, with the stamp `time_ns`."""
    types, slo = type_store().types, request.slo
    chat_message = types["timely_llm/msg/ChatMessage"]
    return types[STREAM_TYPE](
        stamp=stamp(time_ns),
        request_id=request.request_id,
        agent=request.agent,
        messages=[chat_message(role=one.role, content=one.content) for one in request.messages],
        prompt="",
        slo_class="",
        ttft=slo.ttft_s,
        tpot=slo.tpot_s,
        deadline=slo.deadline_s,
        weight=request.weight,
        conversation=request.conversation,
        turn=request.turn,
        words_per_s=request.words_per_s,
        max_tokens=request.max_tokens,
        temperature=request.temperature,
        seed=request.seed,
        mode=int(request.mode),
        first_token=request.first_token,
        dispatcher=request.dispatcher,
        signature=unsigned(),
    )
