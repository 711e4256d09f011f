"""The history of one request: steps, segments or tokens, and what its robot or person did."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

from timely_llm.core.events.schema import (
    AnsweredEvent,
    AnswerEvent,
    AskEvent,
    CallEvent,
    ChunkEvent,
    CompleteEvent,
    DoneEvent,
    EndEvent,
    FailEvent,
    HeardEvent,
    PlanRequestEvent,
    QuestionEvent,
    ReceiveEvent,
    ReplanEvent,
    ReportEvent,
    SegmentEvent,
    StreamEvent,
)
from timely_llm.core.request import mean_gap_s
from timely_llm.core.slo import READING_WORDS_PER_S, Listener, Slo
from timely_llm.core.step import StageTimes

AboutPlan = (
    AskEvent | PlanRequestEvent | SegmentEvent | ReportEvent | AnswerEvent | ReplanEvent
    | CompleteEvent | EndEvent | ReceiveEvent | CallEvent | FailEvent | DoneEvent
)  # fmt: skip
"""Events about one plan that its history takes."""
ABOUT_PLANS = AboutPlan.__args__
AboutStream = QuestionEvent | StreamEvent | ChunkEvent | HeardEvent | EndEvent | AnsweredEvent
"""Events about one answer that its history takes."""
ABOUT_STREAMS = (QuestionEvent, StreamEvent, ChunkEvent, HeardEvent, AnsweredEvent)

RUNNING_S = 0.15
"""A generation counts as running for this long after its last step."""
REST_S = 0.05
"""An engine that makes no step for this long rests."""


@dataclass(frozen=True)
class StepRecord:
    """One forward pass.

    Attributes:
        ids: the requests that took part.
        server: that of the engine; empty: there is one server.
        stages: its times in each stage of a pipeline; None: one stage, or not measured.
    """

    start_s: float
    duration_s: float
    ids: tuple[str, ...]
    server: str = ""
    stages: StageTimes | None = None

    @property
    def end_s(self) -> float:
        """When it was over."""
        return self.start_s + self.duration_s

    @property
    def sequences(self) -> int:
        """How many sequences took part."""
        return len(self.ids)


@dataclass
class GenerationSpan:
    """An unbroken run of steps of one generation.

    Attributes:
        last_step: number of its last step.
        steps: how many they are.
        server: that of the engine; empty: there is one server.
    """

    start_s: float
    end_s: float
    last_step: int
    steps: int = 1
    server: str = ""

    def goes_on_with(self, step: StepRecord, number: int) -> bool:
        """Whether a step follows with neither another one nor a rest of the engine between."""
        follows = self.last_step == number - 1 and self.server == step.server
        return follows and step.start_s - self.end_s < REST_S


@dataclass
class RequestHistory:
    """A request as the engine sees it: of a robot or of a person.

    Attributes:
        asked_s: when it was asked for; not a number while only the server's word is known.
        due_s: when the next segment or token is needed.
        asks_help: whether a cloud was asked for. Then the server logs the requests of the parts;
            what came of them is what the robot or person got.
        generated: nothing more is generated.
        end_s: when the server ended it; not a number before that.
        taken: when servers took it, and their names; empty if there is one server.
    """

    id: str
    agent: str = ""
    asked_s: float = math.nan
    due_s: float = math.nan
    asks_help: bool = False
    steps: int = 0
    generated: bool = False
    end_s: float = math.nan
    slices: list[GenerationSpan] = field(default_factory=list)
    taken: list[tuple[float, str]] = field(default_factory=list)

    @property
    def server(self) -> str:
        """The last one of several servers that took it; empty: none did, or there is only one."""
        return self.taken[-1][1] if self.taken else ""

    def server_at(self, at_s: float) -> str:
        """Return the server that had taken it last at a time; empty: none had."""
        return next((name for taken_s, name in reversed(self.taken) if taken_s <= at_s), "")

    def goes_on_at(self, server: str, at_s: float) -> None:
        """Enter that one of several servers took it: what it got elsewhere was not its end."""
        self.taken.append((at_s, server))
        self.generated, self.end_s = False, math.nan

    def generation(self, now_s: float) -> str:
        """Return queued, running, suspended or done."""
        if self.generated:
            return "done"
        if not self.slices:
            return "queued"
        return "running" if self.slices[-1].end_s > now_s - RUNNING_S else "suspended"

    def took_part(self, step: StepRecord, number: int) -> None:
        """Enter the run's step of this number."""
        self.steps += 1
        if self.slices and self.slices[-1].goes_on_with(step, number):
            self.slices[-1].end_s = step.end_s
            self.slices[-1].last_step = number
            self.slices[-1].steps += 1
        else:
            span = GenerationSpan(step.start_s, step.end_s, number, server=step.server)
            self.slices.append(span)


@dataclass(frozen=True)
class DeliveredSegment:
    """A segment as the server published it; `due_s` is when it was needed."""

    index: int
    at_s: float
    due_s: float
    text: str


@dataclass(frozen=True)
class CallExecution:
    """A skill being executed by a robot."""

    index: int
    text: str
    start_s: float
    duration_s: float

    @property
    def end_s(self) -> float:
        """When it will be over."""
        return self.start_s + self.duration_s

    def cut(self, end_s: float) -> CallExecution:
        """Return it as it was executed until `end_s`."""
        return replace(self, duration_s=min(self.duration_s, end_s - self.start_s))


@dataclass
class PlanHistory(RequestHistory):
    """One request of one robot.

    Attributes:
        blocked: its generation waits for a skill's value.
        blocks: start and end of the times in which it was blocked; the last end may be infinite.
        failures: when its robot failed to execute a segment, and why.
        newest: epoch and index of the last segment.
        texts: of segments as they came last, by epoch and index.
        outcome: how it ended for its robot.
    """

    urgent: bool = False
    task: str = ""
    ert_s: float = math.nan
    blocked: bool = False
    blocks: list[tuple[float, float]] = field(default_factory=list)
    failures: list[tuple[float, str]] = field(default_factory=list)
    newest: tuple[int, int] = (0, -1)
    texts: dict[tuple[int, int], str] = field(default_factory=dict)
    delivered: list[DeliveredSegment] = field(default_factory=list)
    calls: list[CallExecution] = field(default_factory=list)
    outcome: DoneEvent | None = None
    _free_s: float = math.nan  # with help: when its robot has executed what it got

    def generation(self, now_s: float) -> str:
        """Return queued, running, suspended, blocked or done."""
        return "blocked" if self.blocked and not self.generated else super().generation(now_s)

    def call_at(self, now_s: float) -> CallExecution | None:
        """Return the call that is being executed."""
        if self.calls and self.outcome is None and now_s < self.calls[-1].end_s:
            return self.calls[-1]
        return None

    def execution(self) -> list[CallExecution]:
        """Return its calls, each cut where it failed or where the request ended."""
        end_s = self.outcome.t if self.outcome else math.inf
        return [
            call.cut(min(end_s, self.failed_s(call))) for call in self.calls if call.start_s < end_s
        ]

    def failed_s(self, call: CallExecution) -> float:
        """Return when a call failed; infinite if it did not."""
        later = (other.start_s for other in self.calls if other.start_s > call.start_s)
        next_s = min(later, default=math.inf)
        ends = (at_s for at_s, _ in self.failures if call.start_s <= at_s <= next_s)
        return min(ends, default=math.inf)

    def waits(self, now_s: float) -> list[tuple[float, float]]:
        """Return (start, end) of the times in which its robot had nothing to execute."""
        waits, free_s = [], self.asked_s
        for call in self.execution():
            waits.append((free_s, call.start_s))
            free_s = max(free_s, call.end_s)
        if self.outcome is None or self.outcome.outcome != "finished":
            waits.append((free_s, self.outcome.t if self.outcome else now_s))
        return [(start_s, end_s) for start_s, end_s in waits if end_s - start_s > 0.01]

    def add(self, event: AboutPlan) -> None:
        """Take an event about it."""
        match event:
            case AskEvent():
                self.agent, self.task = event.agent, event.task
                self.asked_s, self.urgent = event.t, event.urgent
                self.ert_s = event.ert_s
                if event.mode:  # the server's events may have come first
                    self.asks_help, self.generated, self.blocked = True, False, False
                    self.delivered, self.blocks, self.newest = [], [], (0, -1)
                    self.due_s = self._free_s = event.t + event.ert_s
            case ReceiveEvent():
                if self.asks_help:
                    self._received(event)
            case (
                PlanRequestEvent() | SegmentEvent() | ReportEvent() | AnswerEvent()
                | ReplanEvent() | CompleteEvent() | EndEvent()
            ) if self.asks_help:  # fmt: skip
                pass
            case PlanRequestEvent():
                self.due_s = event.t + event.ert_s
            case SegmentEvent():
                self._segment(event)
            case ReportEvent():
                self.due_s = event.due_s
            case AnswerEvent():
                self._go_on(event.t)
            case ReplanEvent():
                self._go_on(event.t)
                self.due_s, self.generated = event.due_s, False
            case CompleteEvent() | EndEvent():
                self._go_on(event.t)
                self.generated = True
                if isinstance(event, EndEvent):
                    self.end_s = event.t
            case FailEvent():
                self.failures.append((event.t, event.reason))
            case CallEvent():
                self.calls.append(CallExecution(event.index, event.call, event.t, event.s))
                if self.asks_help:
                    self.due_s = self._free_s = max(self._free_s, self.calls[-1].end_s)
            case DoneEvent():
                self.outcome = event
                if self.asks_help:
                    self.generated, self.end_s = True, event.t

    def _received(self, event: ReceiveEvent) -> None:
        """Enter a segment of a plan with help as its robot got it."""
        place = (event.epoch, event.index)
        self.texts[place] = event.text
        if place <= self.newest:
            return
        self.newest, self.generated = place, event.final
        self.delivered.append(DeliveredSegment(event.index, event.t, self.due_s, event.text))
        begins_s = event.t if len(self.delivered) == 1 else max(event.t, self._free_s)
        self.due_s = self._free_s = begins_s + event.predicted_s

    def _go_on(self, at_s: float) -> None:
        """Enter that it waits for no value any more."""
        if self.blocked and self.blocks:
            self.blocks[-1] = (self.blocks[-1][0], at_s)
        self.blocked = False

    def _segment(self, event: SegmentEvent) -> None:
        """Enter a segment; the last one may come again, only to say that it is the last."""
        place = (event.epoch, event.index)
        self.texts[place] = event.text
        if place <= self.newest:
            return
        self._go_on(event.t)
        self.newest, self.blocked = place, event.blocking
        if self.blocked:
            self.blocks.append((event.t, math.inf))
        due_s, self.due_s = self.due_s, event.due_s
        self.delivered.append(DeliveredSegment(event.index, event.t, due_s, event.text))


TimeSpan = tuple[float, float]
"""Start and end, seconds."""
_ROUNDING_S = 1e-5


@dataclass
class StreamHistory(RequestHistory):
    """One question of one person, and its answer.

    Attributes:
        sources: when the words of each part of a sketch begin, and its number; 0: the opening.
        slo: when its tokens are due.
        arrived_s: when the server took it.
        heard: when there were words to take in.
        stalled: when there were none between two words.
        words_per_s: speed of its listener.
        outcome: how it ended for its person.
    """

    question: str = ""
    slo_class: str = ""
    slo: Slo = field(default_factory=Slo)
    words_per_s: float = READING_WORDS_PER_S
    arrived_s: float = math.nan
    chunks: list[ChunkEvent] = field(default_factory=list)
    heard: list[TimeSpan] = field(default_factory=list)
    stalled: list[TimeSpan] = field(default_factory=list)
    outcome: AnsweredEvent | None = None
    sources: list[tuple[float, int]] = field(default_factory=list)
    _listener: Listener = field(default_factory=Listener, compare=False, repr=False)

    @property
    def part(self) -> int:
        """The number of the part that came last; 0: no part has come."""
        return self.sources[-1][1] if self.sources else 0

    @property
    def answered(self) -> bool:
        """Whether its person got all of it."""
        return self.outcome is not None and self.outcome.outcome == "answered"

    @property
    def ttft_s(self) -> float:
        """Seconds from its arrival to the first token; not a number before that."""
        return self.chunks[0].t - self.arrived_s if self.chunks else math.nan

    @property
    def tokens_per_s(self) -> float:
        """How fast its tokens came; not a number with fewer than two."""
        gap_s = self._tpot_s
        return 1.0 / gap_s if gap_s else math.nan

    @property
    def _tpot_s(self) -> float:
        if not self.chunks:
            return 0.0
        return mean_gap_s(self.chunks[0].t, self.chunks[-1].t, len(self.chunks))

    def last_words(self, characters: int) -> str:
        """Return the end of the answer so far, at most `characters` of it."""
        text, pieces = "", reversed(self.chunks)
        while len(text) < characters and (piece := next(pieces, None)):
            text = piece.text + text
        return " ".join(text.split())[-characters:]

    def credit_s(self, now_s: float) -> float:
        """Return the seconds of words left to take in; below 0, the seconds without words."""
        if not self.chunks:
            return 0.0
        return self.chunks[-1].credit_s - (now_s - self.chunks[-1].t)

    def keeps_slo(self, now_s: float) -> bool:
        """Whether its service level is kept; while it goes on, by what was generated so far."""
        if self.outcome is not None:
            return self.outcome.slo_met
        begin_s = self.asked_s if math.isnan(self.arrived_s) else self.arrived_s
        if not self.chunks:
            return self.slo.met(now_s - begin_s, 0.0, now_s - begin_s)
        if self.generated:
            return self.slo.met(self.ttft_s, self._tpot_s, self.chunks[-1].t - begin_s)
        # The next token comes now at the earliest.
        tpot_s = (now_s - self.chunks[0].t) / len(self.chunks)
        return self.slo.met(self.ttft_s, tpot_s, now_s - begin_s)

    def add(self, event: AboutStream) -> None:
        """Take an event about it."""
        match event:
            case QuestionEvent():
                self.agent, self.question = event.agent, event.text
                self.asked_s, self.slo_class = event.t, event.slo_class
                if event.mode:  # the server's events may have come first
                    self.asks_help, self.generated = True, False
                    self.chunks, self.heard, self.stalled = [], [], []
            case HeardEvent():
                if self.asks_help:
                    self._heard(event)
            case ChunkEvent() | EndEvent() if self.asks_help:
                pass
            case StreamEvent():
                deadline_s = math.inf if event.deadline_s is None else event.deadline_s
                self.slo = Slo(event.ttft_s, event.tpot_s, deadline_s)
                self.words_per_s = event.words_per_s
                if math.isnan(self.arrived_s):  # else it goes on at another server
                    self.arrived_s = event.t
                self.due_s = event.t + event.ttft_s
            case ChunkEvent():
                self._chunk(event)
                self.due_s = event.due_s
                self.generated = self.generated or event.final
            case EndEvent():
                self.generated, self.end_s = True, event.t
            case AnsweredEvent():
                self.outcome = event
                if self.asks_help:
                    self.generated, self.end_s = True, event.t

    def _heard(self, event: HeardEvent) -> None:
        """Enter a piece of an answer with help as a chunk that came when its person got it."""
        if not self.chunks:
            self._listener = Listener(self.words_per_s)
        begins_s = event.t + max(self._listener.credit_s(event.t), 0.0)
        if event.text and (not self.sources or event.part != self.part):
            self.sources.append((begins_s, event.part))
        self._listener.receive(event.text, event.t)
        credit_s = self._listener.credit_s(event.t)
        self.due_s = event.t + credit_s
        self._chunk(
            ChunkEvent(event.t, event.id, event.index, event.text, False, self.due_s, credit_s)
        )

    def _chunk(self, chunk: ChunkEvent) -> None:
        self.chunks.append(chunk)
        if chunk.credit_s <= 0.0:
            return  # no word has begun, or none since the last one was taken in
        dry_s = chunk.t + chunk.credit_s
        if self.heard and chunk.t <= self.heard[-1][1] + _ROUNDING_S:
            self.heard[-1] = self.heard[-1][0], dry_s
        else:
            self.stalled += [(span[1], chunk.t) for span in self.heard[-1:]]
            self.heard.append((chunk.t, dry_s))
