"""The publisher of a loop's events, and what it counts of them."""

from __future__ import annotations

import logging
import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from timely_llm.core.events.codec import is_written
from timely_llm.core.events.log import EventLog
from timely_llm.core.events.run_event import RunEvent
from timely_llm.core.events.schema import (
    ChunkEvent,
    EndEvent,
    KvWaitEvent,
    PlanRequestEvent,
    ReplanEvent,
    ReportEvent,
    SegmentEvent,
    StepEvent,
    StreamEvent,
)
from timely_llm.core.request import ErrorCode, PlanResult, Result, StreamResult
from timely_llm.core.step import StageTimes, StageUse, StepResult, stage_uses
from timely_llm.serving.failures import Failures, in_words
from timely_llm.serving.loop import Loop
from timely_llm.serving.sink import RecordingSink, Sink

log = logging.getLogger(__name__)
RECENT = 256

_NO_ANSWERS = frozenset(
    (
        ErrorCode.CANCELED, ErrorCode.INVALID_REQUEST, ErrorCode.UNKNOWN_CONVERSATION,
        ErrorCode.CLIENT_SILENT,
    )
)  # fmt: skip
"""Ends of streams that say nothing about how well they were served: the client's doing."""


def _recent() -> deque[float]:
    return deque(maxlen=RECENT)


@dataclass
class Stats:
    """What a loop has done since it was made; times in seconds.

    Attributes:
        guessed_tokens: speculative tokens that the engine computed.
        right_guesses: guessed tokens that the model accepted.
        loaded_tokens: tokens with KV that was found or loaded instead of computed.
        chunks: published tokens of answers.
        duration_error: mean of |true - predicted| / true of the last executed segments of one skill
            set: that of the newest report.
        duration_bias: mean of (true - predicted) / true of the same.
    """

    requests: int = 0
    ended: int = 0
    failed: int = 0
    expired: int = 0
    silent: int = 0
    replans: int = 0
    segments: int = 0
    steps: int = 0
    prompt_tokens: int = 0
    generated_tokens: int = 0
    recomputed_tokens: int = 0
    loaded_tokens: int = 0
    evictions: int = 0
    guessed_tokens: int = 0
    right_guesses: int = 0
    chunks: int = 0
    duration_error: float = 0.0
    duration_bias: float = 0.0
    _step_s: deque[float] = field(default_factory=_recent)
    _response_s: deque[float] = field(default_factory=_recent)
    _utility: deque[float] = field(default_factory=_recent)
    _ttft_s: deque[float] = field(default_factory=_recent)
    _slo_met: deque[float] = field(default_factory=_recent)
    _stalled_s: deque[float] = field(default_factory=_recent)
    _stages: deque[StageTimes] = field(default_factory=lambda: deque(maxlen=RECENT))

    def take(self, event: RunEvent) -> None:
        """Count an event of the loop."""
        match event:
            case StepEvent(result=StepResult() as result):
                self._step(result)
            case ChunkEvent():
                self.chunks += 1
            case SegmentEvent():
                self.segments += 1
            case PlanRequestEvent() | StreamEvent():
                self.requests += 1
                self.prompt_tokens += event.prompt_tokens
            case ReportEvent(durations=(error, bias)):
                self.duration_error, self.duration_bias = error, bias
            case ReplanEvent():
                self.replans += 1
                self.prompt_tokens += event.prompt_tokens
            case EndEvent(result=Result() as ended):
                self.requests += not event.admitted
                self._end(ended)
            case KvWaitEvent(result=StepResult() as result):
                self._kv(result)

    def _kv(self, result: StepResult) -> None:
        if result.loaded:
            self.loaded_tokens += sum(result.loaded.values())
        self.evictions += len(result.evicted)

    def _step(self, result: StepResult) -> None:
        self._kv(result)
        self.steps += 1
        self.generated_tokens += sum(map(len, result.tokens.values()))
        if result.recomputed:
            self.recomputed_tokens += sum(result.recomputed.values())
        if result.speculative:
            self.guessed_tokens += sum(result.speculative.values())
            self.right_guesses += sum(len(result.tokens[key]) - 1 for key in result.speculative)
        if 0.0 <= result.duration_s < math.inf:  # a clock may have been set back
            self._step_s.append(result.duration_s)
        if result.stages is not None:
            self._stages.append(result.stages)

    def _end(self, result: Result) -> None:
        """Count the end of a request; a canceled one is neither a success nor a failure."""
        if result.error_code is ErrorCode.NONE:
            self.ended += 1
        elif result.error_code is not ErrorCode.CANCELED:
            self.failed += 1
            self.expired += result.error_code is ErrorCode.EXPIRED
            self.silent += result.error_code is ErrorCode.CLIENT_SILENT
        if isinstance(result, PlanResult) and result.response_s >= 0:
            self._response_s.append(result.response_s)
            self._utility.append(result.utility)
        elif isinstance(result, StreamResult) and result.error_code not in _NO_ANSWERS:
            self._slo_met.append(result.slo_met)
            self._stalled_s.append(result.stalled_s)
            if result.ttft_s >= 0:
                self._ttft_s.append(result.ttft_s)

    @property
    def step_s(self) -> float:
        """Mean seconds of the last steps, 0 before the first."""
        return _mean(self._step_s)

    @property
    def stages(self) -> list[StageUse]:
        """What the stages of the engine did in the last steps; empty: one stage."""
        return stage_uses(self._stages)

    @property
    def utility(self) -> float:
        """Mean utility of the last requests, 0 before the first."""
        return _mean(self._utility)

    @property
    def slo_met(self) -> float:
        """Share of the last answers that met their service level, 0 before the first."""
        return _mean(self._slo_met)

    @property
    def stalled_s(self) -> float:
        """Mean seconds that listeners of the last answers had to wait for words."""
        return _mean(self._stalled_s)

    def response_s(self, percentile: float) -> float:
        """Return a percentile of the last response times, 0 before the first."""
        return _percentile(self._response_s, percentile)

    def ttft_s(self, percentile: float) -> float:
        """Return a percentile of the last times to a first token, 0 before the first."""
        return _percentile(self._ttft_s, percentile)


def _mean(values: deque[float]) -> float:
    return float(np.mean(values)) if values else 0.0


def _percentile(values: deque[float], percentile: float) -> float:
    return float(np.percentile(values, percentile)) if values else 0.0


class EventPublisher:
    """Hands a loop's events in order to its consumers: the counts, the sink, the event log.

    A segment or chunk that the sink does not take ends its request, and no other. An event log that
    raises ends there; the requests go on.

    Args:
        loop: made the events.
        sink: takes segments, chunks, steps and results.
        event_log: takes all events; None: there is none.

    Attributes:
        stats: counts and recent times.
    """

    def __init__(self, loop: Loop, sink: Sink, event_log: EventLog | None = None) -> None:
        self._loop = loop
        self._sink = sink
        self._recording = sink if isinstance(sink, RecordingSink) else None
        self._event_log = event_log
        self._undelivered = Failures(log, "the tokens of a request could not be delivered")
        self._waiting: deque[RunEvent] = deque()
        self._handed_out: deque[RunEvent] = deque()
        self._lost: set[str] = set()
        self.stats = Stats()

    def publish(self, events: Sequence[RunEvent], more: bool = False) -> None:
        """Hand out events in order; those that an exception leaves come first the next time.

        All go to the sink first, then to the counts and the event log: no robot waits for these.
        A sink that records has all segments before it gets the first one.

        Args:
            events: of the loop, in order.
            more: more are handed out at once: their records can be written together.
        """
        self._waiting.extend(events)
        try:
            if self._recording is not None and events:
                self._recording.coming(
                    e.segment for e in events if isinstance(e, SegmentEvent) and e.segment
                )
            while self._waiting:
                event = self._waiting.popleft()
                if not self._lost or getattr(event, "id", None) not in self._lost:
                    self._hand_out(event)
            self._lost.clear()
        finally:
            while self._handed_out:
                event = self._handed_out.popleft()
                self.stats.take(event)
                self._write(event)
            if self._recording is not None and not more:
                self._recording.written()

    def close(self) -> None:
        """Close the event log."""
        if self._event_log is not None:
            self._event_log.close()

    def _hand_out(self, event: RunEvent) -> None:
        """Hand an event to the sink, if it takes such events."""
        if isinstance(event, SegmentEvent | ChunkEvent):
            try:
                self.deliver(event)
            except Exception as error:  # one request's trouble is no other's
                self._end_undelivered(event, error)
                return
        self._handed_out.append(event)  # whether or not the sink takes a step or an end
        match event:
            case StepEvent(result=StepResult() as result):
                self._sink.stepped(result)
            case EndEvent(result=Result() as ended):
                self._sink.ended(ended)

    def deliver(self, event: SegmentEvent | ChunkEvent) -> None:
        """Hand a segment or chunk to the sink, before the next step begins."""
        if isinstance(event, ChunkEvent):
            if event.chunk is not None:
                self._sink.chunk(event.chunk)
        elif event.segment is not None:
            self._sink.segment(event.segment)

    def _end_undelivered(self, event: SegmentEvent | ChunkEvent, error: Exception) -> None:
        """End the request of an event that the sink did not take, and publish its end."""
        self._undelivered.add(error)
        self._lost.add(event.id)
        if event.generation is not None:
            self._loop.end_undelivered(event.generation, in_words(error))
            for end in self._loop.take_events():
                self._hand_out(end)

    def _write(self, event: RunEvent) -> None:
        if self._event_log is None or not is_written(event):
            return
        try:
            self._event_log.write(event)
        except Exception as error:
            log.error("the event log ends here: %s", in_words(error))
            self._event_log = None
