"""Conversations as this package's messages, both ways: types from the .msg files, no ROS."""

from __future__ import annotations

from typing import Any

from timely_llm.core.listener import READING_WORDS_PER_S, SPEAKING_WORDS_PER_S
from timely_llm.core.slo import SLO_CLASSES, TEXT, VOICE, Slo
from timely_llm.core.stream import MAX_MESSAGE_CHARACTERS, ChatMessage, StreamRequest
from timely_llm.engines.script_tokenizer import ScriptTokenizer
from timely_llm.traces.messages import type_store
from timely_llm.traces.model import Conversation

STREAM_TYPE = "timely_llm/msg/StreamRequest"
STREAM_RESULT_TYPE = "timely_llm/msg/StreamResult"
STREAM_TOPIC = "/plan_server/stream_requests"
ACCEPTED_STREAMS = "/streams"
"""How the topic ends on which a server tells what conversations it accepted."""

_FILLER = "."
_CLASSES = {made.name: made for made in SLO_CLASSES}


def conversation_of(
    message: Any, name: str, arrival_s: float, prompt_tokens: int = 0, output_tokens: int = 0
) -> Conversation:
    """Return what a StreamRequest asks for; nobody vouches for it.

    A service level by name is the paper's of that name, else that of text: a recording does not
    say what a server's own are, but what it accepted has all values.

    Args:
        message: the request; of a later turn, it has only what is new.
        name: the conversation's id.
        arrival_s: when it came.
        prompt_tokens: if known; else they are counted as a simulated model would.
        output_tokens: if known; else as many as the request allows.

    Raises:
        TraceError: no conversation can be like that.
        RequestError: its service level is not possible.
    """
    given = _CLASSES.get(message.slo_class, TEXT)
    slo = Slo(
        message.ttft or given.slo.ttft_s,
        message.tpot or given.slo.tpot_s,
        message.deadline or given.slo.deadline_s,
    )
    said = [one.content for one in message.messages]
    text = "\n".join([*said, message.prompt] if message.prompt else said)
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
    """Return what a person asks a server whose model says what it likes.

    It is the conversation's text or, where that is not known, dots: about as many tokens as its
    prompt has. The answer has as many tokens as the conversation's, if the model goes on so long.

    Raises:
        RequestError: no server takes it.
    """
    # No longer than what is refused.
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


def stream_message(request: StreamRequest) -> Any:
    """Return a request as a StreamRequest that rosbags writes."""
    types, slo = type_store().types, request.slo
    said = types["timely_llm/msg/ChatMessage"]
    return types[STREAM_TYPE](
        request_id=request.request_id,
        agent=request.agent,
        messages=[said(role=one.role, content=one.content) for one in request.messages],
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
    )
