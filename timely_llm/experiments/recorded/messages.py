"""The messages of a recorded bag, sorted by request. Their values are not trusted."""

from __future__ import annotations

import json
import math
import sys
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from operator import attrgetter
from pathlib import Path
from typing import Any, Generic, TypeVar, cast

from timely_llm.core.request import ErrorCode, ReportState
from timely_llm.core.step import StageTimes
from timely_llm.traces.lines import MAX_LINE_BYTES, VERSION, read_lines
from timely_llm.traces.model import Conversation, Job, TraceError, printable
from timely_llm.traces.recordings.bags import LINE_TOPIC, LINE_TYPE
from timely_llm.traces.recordings.mcap import BagMessage
from timely_llm.traces.recordings.messages import decoded
from timely_llm.traces.recordings.recorded import ACCEPTED, REQUEST_TYPE
from timely_llm.traces.streams import ACCEPTED_STREAMS, STREAM_TYPE

RecordedLine = TypeVar("RecordedLine", Job, Conversation)
M = TypeVar("M")
_TIME_NS = attrgetter("time_ns")


@dataclass(frozen=True)
class RecordedMessage:
    """The message of a request that was sent to the server or accepted by it."""

    time_ns: int
    message: Any


@dataclass(frozen=True)
class RecordedDelivery:
    """A published segment, or a token of an answer. A segment may be published twice.

    Attributes:
        epoch: epoch of a segment; 0 for tokens.
    """

    time_ns: int
    epoch: int
    index: int
    text: str
    final: bool


@dataclass(frozen=True)
class RecordedReport:
    """A robot's report about a segment; `duration_s` is None or at least 0."""

    time_ns: int
    epoch: int
    index: int
    state: ReportState
    duration_s: float | None


@dataclass(frozen=True)
class RecordedEnd:
    """The end of a request.

    Attributes:
        epoch: last epoch of a plan; 0 for answers.
        new_tokens: prompt tokens without those of earlier turns.
    """

    time_ns: int
    error_code: int
    epoch: int
    generated_tokens: int
    new_tokens: int


@dataclass(frozen=True)
class RecordedStep:
    """A step of the engine; it was published at its end.

    Attributes:
        stages: its times in each stage of a pipeline; None: one stage, or not measured.
    """

    time_ns: int
    duration_s: float
    ids: tuple[str, ...]
    stages: StageTimes | None = None


@dataclass
class RecordedId(Generic[RecordedLine]):
    """All messages about one request id. Several requests may have used the id.

    Attributes:
        taken: requests that the server accepted, from the topic `requests` or `streams`.
        sent: requests by topic, from robots, people or a played bag.
        line: the line of a trace for this id.
    """

    taken: list[RecordedMessage] = field(default_factory=list)
    sent: list[RecordedMessage] = field(default_factory=list)
    delivered: list[RecordedDelivery] = field(default_factory=list)
    reported: list[RecordedReport] = field(default_factory=list)
    ended: list[RecordedEnd] = field(default_factory=list)
    line: RecordedLine | None = None

    def sort(self) -> None:
        """Sort all messages by time."""
        for messages in (self.taken, self.sent, self.delivered, self.reported, self.ended):
            cast(list[Any], messages).sort(key=_TIME_NS)

    def between(self, low_ns: int, high_ns: int) -> RecordedId[RecordedLine]:
        """Return the messages from `low_ns` on and before `high_ns`, if all are sorted."""

        def cut(messages: list[M]) -> list[M]:
            low, high = (bisect_left(messages, ns, key=_TIME_NS) for ns in (low_ns, high_ns))
            return messages[low:high]

        mine = cut(self.delivered), cut(self.reported), cut(self.ended)
        return RecordedId([], [], *mine, self.line)


@dataclass(frozen=True)
class RecordedRequest(Generic[RecordedLine]):
    """One request of an id, and the messages about it.

    Attributes:
        request_id: its own id.
        id: unique in the recording.
        message: its arrival; the message is None if only a trace's line describes the request.
    """

    request_id: str
    id: str
    message: RecordedMessage
    messages: RecordedId[RecordedLine]

    @property
    def ended(self) -> RecordedEnd | None:
        """The request's end; None if it was not recorded."""
        # A duplicate is refused while the first request of its id is served: not the first's end.
        ends = (e for e in self.messages.ended if e.error_code != ErrorCode.DUPLICATE_REQUEST)
        return next(ends, None)


def recorded_requests(
    abouts: Mapping[str, RecordedId[RecordedLine]], messages: RecordedMessages
) -> tuple[list[RecordedRequest[RecordedLine]], int]:
    """Return requests in order of arrival, and the number of ids without a known request."""
    made: list[RecordedRequest[RecordedLine]] = []
    unknown = 0
    for name, about in abouts.items():
        mine = list(_uses(name, about, messages))
        unknown += not mine and bool(about.delivered or about.ended)
        made += mine
    return sorted(made, key=attrgetter("message.time_ns")), unknown


def _uses(
    name: str, about: RecordedId[RecordedLine], messages: RecordedMessages
) -> Iterator[RecordedRequest[RecordedLine]]:
    """Yield the requests of one id, in order."""
    about.sort()
    arrivals: list[RecordedMessage] = about.taken or about.sent or _refused(about)
    bounds_ns = [0, *(later.time_ns for later in arrivals[1:]), sys.maxsize]
    for number, (asked, bounds) in enumerate(zip(arrivals, pairwise(bounds_ns), strict=False)):
        unique = f"{name}+{number}" if number else name
        while number and (unique in messages.requests or unique in messages.streams):
            unique += "+"
        yield RecordedRequest(name, unique, asked, about.between(*bounds))


def _refused(about: RecordedId[RecordedLine]) -> list[RecordedMessage]:
    """Return a refused request, if a trace's line describes it."""
    known = about.line is not None and not about.delivered
    return [RecordedMessage(end.time_ns, None) for end in about.ended[:1] if known]


MAX_MESSAGES = 2_000_000
"""Most messages that are kept; messages of other types do not count."""

MAX_BYTES = 268_435_456
"""Most bytes of requests and of lines of traces."""

MAX_LABEL_CHARACTERS = 200

_STATES = frozenset(map(int, ReportState))
_HEADS = [
    json.dumps(
        {"kind": "trace", "version": VERSION, "name": "", "source": "", "jobs": jobs,
         "conversations": 1 - jobs}
    )
    for jobs in (1, 0)
]  # fmt: skip
"""Headers of traces of one job, and of one conversation."""


class RecordedMessages:
    """The messages of a bag.

    Attributes:
        requests: messages about plan requests, by request id.
        streams: messages about conversations, by request id.
        steps: steps of the engine, in the order of the bag.
        kinds: counts of messages by type, of all types.
        first_ns, last_ns: times at which the first and the last message were received.
        impossible: number of messages with impossible values, which are left out.
        nameless: number of requests without an id; their ends cannot be found.

    Raises:
        TraceError: a message is damaged, or there are too many messages.
    """

    def __init__(self, messages: Iterable[BagMessage], path: Path) -> None:
        self.requests: defaultdict[str, RecordedId[Job]] = defaultdict(RecordedId)
        self.streams: defaultdict[str, RecordedId[Conversation]] = defaultdict(RecordedId)
        self.steps: list[RecordedStep] = []
        self.kinds: Counter[str] = Counter()
        self.first_ns, self.last_ns = sys.maxsize, 0
        self.impossible = self.nameless = 0
        self._path = path
        self._kept = self._bytes = 0
        take: dict[str, Callable[[BagMessage, Any], None]] = {
            LINE_TYPE: self._line,
            REQUEST_TYPE: self._request,
            STREAM_TYPE: self._stream,
            "timely_llm/msg/Segment": self._segment,
            "timely_llm/msg/StreamChunk": self._chunk,
            "timely_llm/msg/ExecutionReport": self._report,
            "timely_llm/msg/PlanResult": self._result,
            "timely_llm/msg/StreamResult": self._stream_result,
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

    def _count(self, message: BagMessage) -> None:
        """Count a message that is kept.

        Raises:
            TraceError: there are too many messages.
        """
        asks = message.channel.type in (LINE_TYPE, REQUEST_TYPE, STREAM_TYPE)
        self._kept += 1
        self._bytes += len(message.data) * asks
        if self._kept > MAX_MESSAGES or self._bytes > MAX_BYTES:
            raise TraceError(
                f"{self._path} is larger than a recording that can be scored: {MAX_MESSAGES}"
                f" messages, and {MAX_BYTES} bytes of requests and lines of traces"
            )

    def _line(self, message: BagMessage, text: Any) -> None:
        """Take a line of a trace; its header, and texts that are not lines, are ignored."""
        if len(text.data) > MAX_LINE_BYTES:
            self.impossible += 1
            return
        for head in _HEADS:
            try:
                trace = read_lines([head, text.data], str(self._path))
            except TraceError:
                continue
            for job in trace.jobs:
                self.requests[job.id].line = job
            for talk in trace.conversations:
                self.streams[talk.id].line = talk

    def _request(self, message: BagMessage, request: Any) -> None:
        self._asked(self.requests, ACCEPTED, message, request)

    def _stream(self, message: BagMessage, request: Any) -> None:
        self._asked(self.streams, ACCEPTED_STREAMS, message, request)

    def _asked(
        self,
        abouts: Mapping[str, RecordedId[RecordedLine]],
        accepted: str,
        message: BagMessage,
        request: Any,
    ) -> None:
        asked = RecordedMessage(message.time_ns, request)
        if message.channel.topic.endswith(accepted):
            abouts[request.request_id].taken.append(asked)
        elif request.request_id:
            abouts[request.request_id].sent.append(asked)
        else:  # the server made an id, which only the accepted request contains
            self.nameless += 1

    def _segment(self, message: BagMessage, segment: Any) -> None:
        text = printable(segment.text[:MAX_LABEL_CHARACTERS]).strip()
        self.requests[segment.request_id].delivered.append(
            RecordedDelivery(message.time_ns, segment.epoch, segment.index, text, segment.final)
        )

    def _chunk(self, message: BagMessage, chunk: Any) -> None:
        text = chunk.text[:MAX_LABEL_CHARACTERS]
        self.streams[chunk.request_id].delivered.append(
            RecordedDelivery(message.time_ns, 0, chunk.index, text, chunk.final)
        )

    def _report(self, message: BagMessage, report: Any) -> None:
        if report.state not in _STATES:
            self.impossible += 1
        elif report.state != ReportState.ALIVE:
            known = math.isfinite(report.duration) and report.duration >= 0.0
            self.requests[report.request_id].reported.append(
                RecordedReport(
                    message.time_ns, report.epoch, report.index, ReportState(report.state),
                    report.duration if known else None,
                )
            )  # fmt: skip

    def _result(self, message: BagMessage, result: Any) -> None:
        self.requests[result.request_id].ended.append(
            RecordedEnd(
                message.time_ns, result.error_code, result.epoch, result.generated_tokens,
                result.prompt_tokens,
            )
        )  # fmt: skip

    def _stream_result(self, message: BagMessage, result: Any) -> None:
        new_tokens = max(result.prompt_tokens - result.kept_tokens, 0)
        self.streams[result.request_id].ended.append(
            RecordedEnd(message.time_ns, result.error_code, 0, result.generated_tokens, new_tokens)
        )

    def _step(self, message: BagMessage, step: Any) -> None:
        possible = math.isfinite(step.duration) and 0.0 <= step.duration <= 86_400.0
        stages = _stages(step)
        if not possible or (stages is not None and not stages.fit):
            self.impossible += 1
            return
        ids = tuple(sys.intern(share.request_id) for share in step.shares)
        self.steps.append(RecordedStep(message.time_ns, step.duration, ids, stages))


def _stages(step: Any) -> StageTimes | None:
    """Return the times of a step's stages; None: the message has none."""
    if not step.stages:
        return None
    begins = tuple(stage.begin for stage in step.stages)
    return StageTimes(
        begins if min(begins) >= 0.0 else (),
        tuple(stage.compute for stage in step.stages),
        tuple(stage.link for stage in step.stages[:-1]),
        tuple(stage.blocked for stage in step.stages),
        tuple(stage.idle for stage in step.stages),
    )
