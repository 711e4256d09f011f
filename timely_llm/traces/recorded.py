"""A recording of a running server as a trace: what it was asked.

The jobs are the requests that the server accepted (`.../requests`) or, where these were not
recorded, the plan requests that came by topic; their task is "recorded". Conversations are those
that it accepted (`.../streams`) or that came by topic, and the results tell their lengths. The
first request of all arrives at 0 s.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from timely_llm.core.errors import RequestError
from timely_llm.core.request import ErrorCode
from timely_llm.core.time_utility import NORMAL, TimeUtility
from timely_llm.traces.mcap import Message
from timely_llm.traces.messages import decoded
from timely_llm.traces.model import Conversation, Job, Trace, TraceError
from timely_llm.traces.streams import (
    ACCEPTED_STREAMS,
    STREAM_RESULT_TYPE,
    STREAM_TYPE,
    conversation_of,
)

REQUEST_TYPE = "timely_llm/msg/PlanRequest"
ACCEPTED = "/requests"
"""How the topic ends on which a server tells what it accepted, whichever way that came."""

_TOPICS = {REQUEST_TYPE: ACCEPTED, STREAM_TYPE: ACCEPTED_STREAMS}


class Requests:
    """Takes the requests of a bag, and the results of conversations.

    Args:
        path: the bag, for errors.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._taken: dict[str, list[Message]] = {kind: [] for kind in _TOPICS}
        self._sent: dict[str, list[Message]] = {kind: [] for kind in _TOPICS}
        # Of conversations, by request: tokens that were computed of the prompt, and of the answer.
        self._lengths: dict[str, tuple[int, int]] = {}
        self._forgotten: set[str] = set()  # which their clients then told anew, as other requests

    @property
    def accepted(self) -> bool:
        """Whether the server told what it accepted."""
        return any(self._taken.values())

    @property
    def count(self) -> int:
        """Requests that came so far; who was accepted may be there twice."""
        return sum(map(len, (*self._taken.values(), *self._sent.values())))

    def take(self, message: Message) -> bool:
        """Take a message; return whether it is a request, which is kept.

        Raises:
            TraceError: it is damaged.
        """
        kind = message.channel.type
        if kind == STREAM_RESULT_TYPE:
            end = decoded(message.data, kind, self._path)
            if end.error_code == ErrorCode.UNKNOWN_CONVERSATION:
                self._forgotten.add(end.request_id)
            # A second request of the same id was refused while the first was served: not its end.
            elif end.error_code != ErrorCode.DUPLICATE_REQUEST:
                new_tokens = max(end.prompt_tokens - end.kept_tokens, 0)
                self._lengths[end.request_id] = (new_tokens, end.generated_tokens)
        if kind not in _TOPICS:
            return False
        known = self._taken if message.channel.topic.endswith(_TOPICS[kind]) else self._sent
        known[kind].append(message)
        return True

    def trace(self) -> Trace:
        """Return what was asked.

        Raises:
            TraceError: one sentence; something in it cannot be.
        """
        asked = {kind: self._ordered(self._taken[kind] or self._sent[kind]) for kind in _TOPICS}
        begin_ns = min(messages[0].time_ns for messages in asked.values() if messages)
        ids: set[str] = set()
        jobs = tuple(self._jobs(asked[REQUEST_TYPE], begin_ns, ids))
        talks = tuple(self._conversations(asked[STREAM_TYPE], begin_ns, ids))
        return Trace(self._path.stem, f"requests recorded in {self._path.stem}", jobs, talks)

    def _ordered(self, messages: Sequence[Message]) -> list[Message]:
        return sorted(messages, key=lambda message: message.time_ns)

    def _jobs(self, messages: Sequence[Message], begin_ns: int, ids: set[str]) -> Iterator[Job]:
        for number, message in enumerate(messages):
            request = decoded(message.data, REQUEST_TYPE, self._path)
            name = _unique(request.request_id or f"request_{number}", number, ids)
            values = request.time_utility
            try:
                utility = TimeUtility(values.beta, values.alpha, values.ert)
                yield Job(
                    id=name,
                    arrival_s=(message.time_ns - begin_ns) / 1e9,
                    agent=request.agent,
                    task="recorded",
                    skill_set=request.skill_set,
                    text=request.task,
                    # A request that was sent with nothing filled in is a normal one.
                    time_utility=NORMAL if utility == TimeUtility(0.0, 0.0, 0.0) else utility,
                )
            except (TraceError, RequestError) as error:
                raise TraceError(f"{self._path}, plan request {number}: {error}") from error

    def _conversations(
        self, messages: Sequence[Message], begin_ns: int, ids: set[str]
    ) -> Iterator[Conversation]:
        for number, message in enumerate(messages):
            request = decoded(message.data, STREAM_TYPE, self._path)
            if request.request_id in self._forgotten:
                continue
            name = _unique(request.request_id or f"stream_{number}", number, ids)
            arrival_s = (message.time_ns - begin_ns) / 1e9
            tokens = self._lengths.get(request.request_id, (0, 0))
            try:
                yield conversation_of(request, name, arrival_s, *tokens)
            except (TraceError, RequestError) as error:
                raise TraceError(f"{self._path}, stream request {number}: {error}") from error


def _unique(name: str, number: int, ids: set[str]) -> str:
    """Return an id that no other request has; one may be used again after it was served."""
    while name in ids:
        name = f"{name}+{number}"
    ids.add(name)
    return name
