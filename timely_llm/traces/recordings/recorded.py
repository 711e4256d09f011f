"""The requests of a recorded server as a trace.

Jobs are the requests that the server accepted (`.../requests`) or, without that topic, the plan
requests by topic. Their task is "recorded", or "given" if the request came with a plan written by
hand. Conversations are those that the server accepted (`.../streams`), or those by topic. Their
lengths come from the results. The first request arrives at 0 s.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from timely_llm.core.errors import RequestError
from timely_llm.core.request import ErrorCode
from timely_llm.core.time_utility import NORMAL, TimeUtility
from timely_llm.traces.model import Conversation, Job, Trace, TraceError
from timely_llm.traces.recordings.mcap import BagMessage
from timely_llm.traces.recordings.messages import decoded
from timely_llm.traces.streams import (
    ACCEPTED_STREAMS,
    STREAM_RESULT_TYPE,
    STREAM_TYPE,
    conversation_of,
)

REQUEST_TYPE = "timely_llm/msg/PlanRequest"
ACCEPTED = "/requests"
"""Suffix of the topic of accepted requests, by action, service or topic."""

_TOPICS = {REQUEST_TYPE: ACCEPTED, STREAM_TYPE: ACCEPTED_STREAMS}


class Requests:
    """Collects the requests of a bag, and the results of conversations.

    Args:
        path: the bag, for errors.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._taken: dict[str, list[BagMessage]] = {kind: [] for kind in _TOPICS}
        self._sent: dict[str, list[BagMessage]] = {kind: [] for kind in _TOPICS}
        # Of conversations, by request id: computed tokens of the prompt, tokens of the answer.
        self._lengths: dict[str, tuple[int, int]] = {}
        self._forgotten: set[str] = set()  # their clients sent them again as other requests

    @property
    def accepted(self) -> bool:
        """Whether the recording has the topic of accepted requests."""
        return any(self._taken.values())

    @property
    def count(self) -> int:
        """Number of requests so far; an accepted request may count twice."""
        return sum(map(len, (*self._taken.values(), *self._sent.values())))

    def take(self, message: BagMessage) -> bool:
        """Take a message; return whether it is a request, which is kept.

        Raises:
            TraceError: the message is damaged.
        """
        kind = message.channel.type
        if kind == STREAM_RESULT_TYPE:
            end = decoded(message.data, kind, self._path)
            if end.error_code == ErrorCode.UNKNOWN_CONVERSATION:
                self._forgotten.add(end.request_id)
            # A duplicate is refused while the first request of its id is served: not its end.
            elif end.error_code != ErrorCode.DUPLICATE_REQUEST:
                new_tokens = max(end.prompt_tokens - end.kept_tokens, 0)
                self._lengths[end.request_id] = (new_tokens, end.generated_tokens)
        if kind not in _TOPICS:
            return False
        known = self._taken if message.channel.topic.endswith(_TOPICS[kind]) else self._sent
        known[kind].append(message)
        return True

    def trace(self) -> Trace:
        """Return the requests as a trace.

        Raises:
            TraceError: a request has an impossible value.
        """
        asked = {kind: self._ordered(self._taken[kind] or self._sent[kind]) for kind in _TOPICS}
        begin_ns = min(messages[0].time_ns for messages in asked.values() if messages)
        ids: set[str] = set()
        jobs = tuple(self._jobs(asked[REQUEST_TYPE], begin_ns, ids))
        talks = tuple(self._conversations(asked[STREAM_TYPE], begin_ns, ids))
        return Trace(self._path.stem, f"requests recorded in {self._path.stem}", jobs, talks)

    def _ordered(self, messages: Sequence[BagMessage]) -> list[BagMessage]:
        return sorted(messages, key=lambda message: message.time_ns)

    def _jobs(self, messages: Sequence[BagMessage], begin_ns: int, ids: set[str]) -> Iterator[Job]:
        for number, message in enumerate(messages):
            request = decoded(message.data, REQUEST_TYPE, self._path)
            name = _unique(request.request_id or f"request_{number}", number, ids)
            try:
                yield job_of(request, name, (message.time_ns - begin_ns) / 1e9)
            except (TraceError, RequestError) as error:
                raise TraceError(f"{self._path}, plan request {number}: {error}") from error

    def _conversations(
        self, messages: Sequence[BagMessage], begin_ns: int, ids: set[str]
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


def job_of(message: Any, name: str, arrival_s: float) -> Job:
    """Return the job of an untrusted PlanRequest; its task is "given" or "recorded".

    Args:
        message: the request.
        name: the job's id.
        arrival_s: arrival, seconds after the trace's origin.

    Raises:
        TraceError: a value is not possible.
        RequestError: its time utility is not possible.
    """
    values = message.time_utility
    utility = TimeUtility(values.beta, values.alpha, values.ert)
    return Job(
        id=name,
        arrival_s=arrival_s,
        agent=message.agent,
        task="given" if message.given_plan else "recorded",
        skill_set=message.skill_set,
        text=message.task,
        # A request with no time utility filled in is normal.
        time_utility=NORMAL if utility == TimeUtility(0.0, 0.0, 0.0) else utility,
        plan=message.given_plan,
        given=bool(message.given_plan),
    )


def _unique(name: str, number: int, ids: set[str]) -> str:
    """Return an id that no other request has. Clients may use an id again after its request."""
    while name in ids:
        name = f"{name}+{number}"
    ids.add(name)
    return name
