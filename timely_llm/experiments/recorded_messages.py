"""What the messages of a recorded bag say, sorted by request; nothing in them is trusted."""

from __future__ import annotations

import json
import math
import sys
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from operator import attrgetter
from pathlib import Path
from typing import Any, TypeVar, cast

from timely_llm.core.request import ReportState
from timely_llm.traces.bags import ACCEPTED, LINE_TOPIC, LINE_TYPE, REQUEST_TYPE
from timely_llm.traces.lines import MAX_LINE_BYTES, VERSION, read_lines
from timely_llm.traces.mcap import Message
from timely_llm.traces.messages import decoded
from timely_llm.traces.model import Job, TraceError, printable

MAX_MESSAGES = 2_000_000
"""Most messages that are read; others of a bag are passed over."""

MAX_BYTES = 268_435_456
"""Most bytes of requests and of lines of traces."""

MAX_LABEL_CHARACTERS = 200

M = TypeVar("M")
_TIME_NS = attrgetter("time_ns")
_STATES = frozenset(map(int, ReportState))
_ONE_JOB = json.dumps(
    {"kind": "trace", "version": VERSION, "name": "", "source": "", "jobs": 1, "conversations": 0}
)


@dataclass(frozen=True)
class Asked:
    """A request as it was sent to the server, or taken by it: the message."""

    time_ns: int
    message: Any


@dataclass(frozen=True)
class Delivered:
    """A segment as the server published it; the last one may come twice."""

    time_ns: int
    epoch: int
    index: int
    text: str
    final: bool


@dataclass(frozen=True)
class Reported:
    """A robot's word about a segment; `duration_s` is a number >= 0, or not known."""

    time_ns: int
    epoch: int
    index: int
    state: ReportState
    duration_s: float | None


@dataclass(frozen=True)
class Ended:
    """How a request ended."""

    time_ns: int
    error_code: int
    epoch: int
    generated_tokens: int


@dataclass(frozen=True)
class Stepped:
    """A step of the engine, published when it was done."""

    time_ns: int
    duration_s: float
    ids: tuple[str, ...]


@dataclass
class About:
    """What is said about one request id; it may have been used more than once.

    Attributes:
        taken: from the topic `requests`, what the server accepted.
        sent: from the topic `plan_requests`, what robots or a played bag sent.
        job: what a trace's line says of it.
    """

    taken: list[Asked] = field(default_factory=list)
    sent: list[Asked] = field(default_factory=list)
    delivered: list[Delivered] = field(default_factory=list)
    reported: list[Reported] = field(default_factory=list)
    ended: list[Ended] = field(default_factory=list)
    job: Job | None = None

    def sort(self) -> None:
        """Put what is said in order of time."""
        for messages in (self.taken, self.sent, self.delivered, self.reported, self.ended):
            cast(list[Any], messages).sort(key=_TIME_NS)

    def between(self, low_ns: int, high_ns: int) -> About:
        """Return what was said, in order of time, from `low_ns` on and before `high_ns`."""

        def cut(messages: list[M]) -> list[M]:
            low, high = (bisect_left(messages, ns, key=_TIME_NS) for ns in (low_ns, high_ns))
            return messages[low:high]

        mine = cut(self.delivered), cut(self.reported), cut(self.ended)
        return About([], [], *mine, self.job)


class Heard:
    """Everything that a bag says.

    Attributes:
        requests: by id.
        steps: in order of the bag.
        kinds: messages by type, of all types.
        first_ns, last_ns: when the first and the last message were received.
        impossible: messages with values that cannot be; they are left out.
        nameless: requests sent without an id, in which nothing tells what became of them.

    Raises:
        TraceError: one sentence; a message is damaged, or there are too many.
    """

    def __init__(self, messages: Iterable[Message], path: Path) -> None:
        self.requests: defaultdict[str, About] = defaultdict(About)
        self.steps: list[Stepped] = []
        self.kinds: Counter[str] = Counter()
        self.first_ns, self.last_ns = sys.maxsize, 0
        self.impossible = self.nameless = 0
        self._path = path
        self._kept = self._bytes = 0
        take: dict[str, Callable[[Message, Any], None]] = {
            LINE_TYPE: self._line,
            REQUEST_TYPE: self._request,
            "timely_llm/msg/Segment": self._segment,
            "timely_llm/msg/ExecutionReport": self._report,
            "timely_llm/msg/PlanResult": self._result,
            "timely_llm/msg/EngineStep": self._step,
        }
        for message in messages:
            kind = message.channel.type
            self.kinds[kind] += 1
            self.first_ns = min(self.first_ns, message.time_ns)
            self.last_ns = max(self.last_ns, message.time_ns)
            if kind not in take or (kind == LINE_TYPE and message.channel.topic != LINE_TOPIC):
                continue
            self._count(message)
            take[kind](message, decoded(message.data, kind, path))

    def knows(self, kind: str) -> bool:
        """Return whether the bag has messages of one of our types, by its short name."""
        return self.kinds[f"timely_llm/msg/{kind}"] > 0

    def _count(self, message: Message) -> None:
        """Take note that a message is kept.

        Raises:
            TraceError: these are more than can be kept.
        """
        asks = message.channel.type in (LINE_TYPE, REQUEST_TYPE)
        self._kept += 1
        self._bytes += len(message.data) * asks
        if self._kept > MAX_MESSAGES or self._bytes > MAX_BYTES:
            raise TraceError(
                f"{self._path} is larger than a recording that can be scored: {MAX_MESSAGES}"
                f" messages, and {MAX_BYTES} bytes of requests and lines of traces"
            )

    def _line(self, message: Message, text: Any) -> None:
        """Take a line of a trace; its header, and what is no job, say nothing of a request."""
        if len(text.data) > MAX_LINE_BYTES:
            self.impossible += 1
            return
        try:
            (job,) = read_lines([_ONE_JOB, text.data], str(self._path)).jobs
        except TraceError:
            return
        self.requests[job.id].job = job

    def _request(self, message: Message, request: Any) -> None:
        asked = Asked(message.time_ns, request)
        if message.channel.topic.endswith(ACCEPTED):
            self.requests[request.request_id].taken.append(asked)
        elif request.request_id:
            self.requests[request.request_id].sent.append(asked)
        else:  # the server made an id: only the topic `requests` tells which
            self.nameless += 1

    def _segment(self, message: Message, segment: Any) -> None:
        text = printable(segment.text[:MAX_LABEL_CHARACTERS]).strip()
        self.requests[segment.request_id].delivered.append(
            Delivered(message.time_ns, segment.epoch, segment.index, text, segment.final)
        )

    def _report(self, message: Message, report: Any) -> None:
        if report.state not in _STATES:
            self.impossible += 1
        elif report.state != ReportState.ALIVE:
            known = math.isfinite(report.duration) and report.duration >= 0.0
            self.requests[report.request_id].reported.append(
                Reported(
                    message.time_ns, report.epoch, report.index, ReportState(report.state),
                    report.duration if known else None,
                )
            )  # fmt: skip

    def _result(self, message: Message, result: Any) -> None:
        ended = Ended(message.time_ns, result.error_code, result.epoch, result.generated_tokens)
        self.requests[result.request_id].ended.append(ended)

    def _step(self, message: Message, step: Any) -> None:
        if not (math.isfinite(step.duration) and 0.0 <= step.duration <= 86_400.0):
            self.impossible += 1
            return
        ids = tuple(map(sys.intern, step.request_ids))
        self.steps.append(Stepped(message.time_ns, step.duration, ids))
