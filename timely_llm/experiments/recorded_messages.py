"""What the messages of a recorded bag say, sorted by request; nothing in them is trusted."""

from __future__ import annotations

import json
import math
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from timely_llm.core.request import ReportState
from timely_llm.experiments.recorded_about import (
    About,
    Asked,
    Delivered,
    Ended,
    Line,
    Reported,
    Stepped,
)
from timely_llm.traces.bags import LINE_TOPIC, LINE_TYPE
from timely_llm.traces.lines import MAX_LINE_BYTES, VERSION, read_lines
from timely_llm.traces.mcap import Message
from timely_llm.traces.messages import decoded
from timely_llm.traces.model import Conversation, Job, TraceError, printable
from timely_llm.traces.recorded import ACCEPTED, REQUEST_TYPE
from timely_llm.traces.streams import ACCEPTED_STREAMS, STREAM_TYPE

MAX_MESSAGES = 2_000_000
"""Most messages that are read; others of a bag are passed over."""

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


class Heard:
    """Everything that a bag says.

    Attributes:
        requests: what is said of plan requests, by id.
        streams: the same of conversations.
        steps: in order of the bag.
        kinds: messages by type, of all types.
        first_ns, last_ns: when the first and the last message were received.
        impossible: messages with values that cannot be; they are left out.
        nameless: requests sent without an id, in which nothing tells what became of them.

    Raises:
        TraceError: one sentence; a message is damaged, or there are too many.
    """

    def __init__(self, messages: Iterable[Message], path: Path) -> None:
        self.requests: defaultdict[str, About[Job]] = defaultdict(About)
        self.streams: defaultdict[str, About[Conversation]] = defaultdict(About)
        self.steps: list[Stepped] = []
        self.kinds: Counter[str] = Counter()
        self.first_ns, self.last_ns = sys.maxsize, 0
        self.impossible = self.nameless = 0
        self._path = path
        self._kept = self._bytes = 0
        take: dict[str, Callable[[Message, Any], None]] = {
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

    def _count(self, message: Message) -> None:
        """Take note that a message is kept.

        Raises:
            TraceError: these are more than can be kept.
        """
        asks = message.channel.type in (LINE_TYPE, REQUEST_TYPE, STREAM_TYPE)
        self._kept += 1
        self._bytes += len(message.data) * asks
        if self._kept > MAX_MESSAGES or self._bytes > MAX_BYTES:
            raise TraceError(
                f"{self._path} is larger than a recording that can be scored: {MAX_MESSAGES}"
                f" messages, and {MAX_BYTES} bytes of requests and lines of traces"
            )

    def _line(self, message: Message, text: Any) -> None:
        """Take a line of a trace; its header, and what is no line, say nothing of a request."""
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

    def _request(self, message: Message, request: Any) -> None:
        self._asked(self.requests, ACCEPTED, message, request)

    def _stream(self, message: Message, request: Any) -> None:
        self._asked(self.streams, ACCEPTED_STREAMS, message, request)

    def _asked(
        self, abouts: Mapping[str, About[Line]], accepted: str, message: Message, request: Any
    ) -> None:
        asked = Asked(message.time_ns, request)
        if message.channel.topic.endswith(accepted):
            abouts[request.request_id].taken.append(asked)
        elif request.request_id:
            abouts[request.request_id].sent.append(asked)
        else:  # the server made an id: only what it accepted tells which
            self.nameless += 1

    def _segment(self, message: Message, segment: Any) -> None:
        text = printable(segment.text[:MAX_LABEL_CHARACTERS]).strip()
        self.requests[segment.request_id].delivered.append(
            Delivered(message.time_ns, segment.epoch, segment.index, text, segment.final)
        )

    def _chunk(self, message: Message, chunk: Any) -> None:
        text = chunk.text[:MAX_LABEL_CHARACTERS]
        self.streams[chunk.request_id].delivered.append(
            Delivered(message.time_ns, 0, chunk.index, text, chunk.final)
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
        self.requests[result.request_id].ended.append(
            Ended(
                message.time_ns, result.error_code, result.epoch, result.generated_tokens,
                result.prompt_tokens,
            )
        )  # fmt: skip

    def _stream_result(self, message: Message, result: Any) -> None:
        new_tokens = max(result.prompt_tokens - result.kept_tokens, 0)
        self.streams[result.request_id].ended.append(
            Ended(message.time_ns, result.error_code, 0, result.generated_tokens, new_tokens)
        )

    def _step(self, message: Message, step: Any) -> None:
        if not (math.isfinite(step.duration) and 0.0 <= step.duration <= 86_400.0):
            self.impossible += 1
            return
        ids = tuple(map(sys.intern, step.request_ids))
        self.steps.append(Stepped(message.time_ns, step.duration, ids))
