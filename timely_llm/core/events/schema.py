"""Events: what happens in a serving loop, to robots and people, and to a process.

Some fields stay in the process: they carry the objects that an event is about. `codec` says how
an event log has the others; docs/event_log.md lists them, from these docstrings and `document`. A
field of a new type needs a form in the table `_FORMS` of `codec`, by its annotation as it is
written here.
"""

from __future__ import annotations

from dataclasses import field

from timely_llm.core.events.run_event import CARRIED, RunEvent, run_event
from timely_llm.core.generation import Generation
from timely_llm.core.reason import Reasons
from timely_llm.core.request import Result, StreamChunk
from timely_llm.core.segment import Segment
from timely_llm.core.step import StageTimes, StepResult

# The process.


@run_event
class OpenedEvent(RunEvent):
    """A writer opened its event log: the first event of each of its lives."""


@run_event
class ReadyEvent(RunEvent):
    """The server is ready: its model is loaded, its skill sets are registered."""


# The serving loop. `due_s` is when the next segment or token is due, on the loop's clock.


@run_event
class PlanRequestEvent(RunEvent):
    """A plan request was admitted; `t` is its arrival.

    Attributes:
        given: whether the plan was written by hand and came with the request.
        prompt_tokens: tokens of its prompt; carried.
    """

    id: str
    agent: str
    task: str
    beta: float
    alpha: float
    ert_s: float
    given: bool = False
    prompt_tokens: int = field(default=0, compare=False, repr=False, metadata=CARRIED)


@run_event
class StreamEvent(RunEvent):
    """A stream request was admitted; `t` is its arrival.

    Attributes:
        ttft_s: longest time to the first token, seconds.
        tpot_s: longest mean time of each later token, seconds.
        deadline_s: longest time to the whole answer, seconds; None: no deadline.
        weight: worth of the answer, relative to those of other streams.
        words_per_s: speed of its listener, words a second.
        prompt_tokens: tokens of its prompt; carried.
    """

    id: str
    agent: str
    ttft_s: float
    tpot_s: float
    deadline_s: float | None
    weight: float
    words_per_s: float
    prompt_tokens: int = field(default=0, compare=False, repr=False, metadata=CARRIED)


@run_event
class StepPlanEvent(RunEvent):
    """The policy planned a step, or none, and gave reasons.

    Attributes:
        why: the reason of each request that could take part, by id: a cause and its number.
    """

    why: Reasons


@run_event
class StepEvent(RunEvent):
    """The engine made a step; `t` is its start.

    Attributes:
        s: duration, seconds.
        ids: ids of the requests that took part.
        stages: its times in each stage of a pipeline; None: one stage, or not measured.
        rows: number of sequences that decoded.
        prompt_tokens: number of prompt tokens that the other sequences computed. Steps without rows
            and without prompt tokens are of earlier releases, which wrote neither.
        context_tokens: number of tokens that all its sequences attended to, without those that it
            computed.
        result: what it did; carried.
    """

    s: float
    ids: tuple[str, ...]
    stages: StageTimes | None = None
    rows: int = 0
    prompt_tokens: int = 0
    context_tokens: int = 0
    result: StepResult | None = field(default=None, compare=False, repr=False, metadata=CARRIED)


@run_event
class KvWaitEvent(RunEvent):
    """The engine only waited for KV loads. Event logs have no such event.

    Attributes:
        result: what was loaded; carried.
    """

    result: StepResult | None = field(default=None, compare=False, repr=False, metadata=CARRIED)


@run_event
class SegmentEvent(RunEvent):
    """A segment is complete: its boundary was matched.

    Attributes:
        text: statements of the segment.
        predicted_s: predicted execution time, seconds.
        blocking: whether the generation now waits for a skill's value.
        segment: what robots get; carried.
        generation: its plan; carried.
    """

    id: str
    index: int
    epoch: int
    text: str
    predicted_s: float
    final: bool
    blocking: bool
    due_s: float
    segment: Segment | None = field(default=None, compare=False, repr=False, metadata=CARRIED)
    generation: Generation | None = field(default=None, compare=False, repr=False, metadata=CARRIED)


@run_event
class ChunkEvent(RunEvent):
    """A token of an answer was generated.

    Attributes:
        index: number of the token in its answer, from 0.
        text: text that the token adds.
        final: whether no token follows.
        credit_s: time until its listener has no word left, seconds.
        chunk: what its client gets; carried.
        generation: its answer; carried.
    """

    id: str
    index: int
    text: str
    final: bool
    due_s: float
    credit_s: float
    chunk: StreamChunk | None = field(default=None, compare=False, repr=False, metadata=CARRIED)
    generation: Generation | None = field(default=None, compare=False, repr=False, metadata=CARRIED)


@run_event
class ReportEvent(RunEvent):
    """A robot's report moved the due time of the next segment.

    Attributes:
        state: name of the report's state, in lower case.
        durations: error and bias of predicted durations, if the report changed them; carried.
    """

    id: str
    index: int
    state: str
    due_s: float
    durations: tuple[float, float] | None = field(
        default=None, compare=False, repr=False, metadata=CARRIED
    )


@run_event
class CompleteEvent(RunEvent):
    """A plan is complete, and its robot still executes it."""

    id: str


@run_event
class AnswerEvent(RunEvent):
    """A blocking skill's value came, and the generation goes on.

    Attributes:
        value: text of the value.
    """

    id: str
    value: str


@run_event
class ReplanEvent(RunEvent):
    """A segment failed, and the plan of the next epoch is asked for.

    Attributes:
        epoch: number of the new plan.
        message: the failed segment and the robot's reason.
        prompt_tokens: tokens of the new prompt; carried.
    """

    id: str
    epoch: int
    message: str
    due_s: float
    prompt_tokens: int = field(default=0, compare=False, repr=False, metadata=CARRIED)


@run_event
class EndEvent(RunEvent):
    """A request ended; nothing more comes of it.

    Attributes:
        code: name of its error code, in lower case.
        message: the error, one sentence; empty: none.
        result: what its client gets; carried.
        admitted: False: the loop refused it; carried.
    """

    id: str
    code: str
    message: str
    result: Result | None = field(default=None, compare=False, repr=False, metadata=CARRIED)
    admitted: bool = field(default=True, compare=False, repr=False, metadata=CARRIED)


# Robots.


@run_event
class RobotEvent(RunEvent):
    """A robot began its life."""

    agent: str


@run_event
class AskEvent(RunEvent):
    """A robot asked for a plan.

    Attributes:
        mode: help that was asked for: progressive or auto; empty: none.
    """

    id: str
    agent: str
    urgent: bool
    task: str
    beta: float
    alpha: float
    ert_s: float
    mode: str = ""


@run_event
class ReceiveEvent(RunEvent):
    """A robot received a segment.

    Attributes:
        text: statements of the segment.
        predicted_s: predicted execution time, seconds.
    """

    id: str
    index: int
    epoch: int
    final: bool
    text: str = ""
    predicted_s: float = 0.0


@run_event
class CallEvent(RunEvent):
    """A robot began a call.

    Attributes:
        call: text of the call.
        s: execution time of the call, seconds.
    """

    id: str
    index: int
    call: str
    s: float


@run_event
class StartEvent(RunEvent):
    """A robot began a segment."""

    id: str
    index: int
    epoch: int


@run_event
class FinishEvent(RunEvent):
    """A robot executed a segment.

    Attributes:
        skipped: whether the segment had no call.
    """

    id: str
    index: int
    epoch: int
    skipped: bool


@run_event
class FailEvent(RunEvent):
    """A robot failed a segment.

    Attributes:
        reason: the robot's, one sentence.
    """

    id: str
    index: int
    epoch: int
    reason: str


@run_event
class ReturnedEvent(RunEvent):
    """A plan returned before its last segment."""

    id: str
    epoch: int


@run_event
class DoneEvent(RunEvent):
    """A request ended for its robot.

    Attributes:
        outcome: finished, canceled, failed or error.
        response_s: time from the request to the first execution, seconds; negative: none.
        waiting_s: time in which the robot had nothing to execute, seconds.
        utility: time utility of the response time.
        plan: text of the last epoch.
        epochs: number of plans that were executed, at least in part.
        segments: number of segments that were executed, of all epochs.
        helped: whether the plan was made with a cloud's steps.
        cloud_tokens: number of tokens that a cloud generated.
        cloud_s: time in which a cloud worked on it, seconds.
        fallback: why a cloud that was asked for did not help, or not to the end; empty: it did.
    """

    id: str
    agent: str
    outcome: str
    urgent: bool
    error_code: int
    error_msg: str
    response_s: float
    waiting_s: float
    utility: float
    plan: str
    epochs: int
    segments: int
    prompt_tokens: int
    generated_tokens: int
    recomputed_tokens: int
    helped: bool = False
    cloud_tokens: int = 0
    cloud_s: float = 0.0
    fallback: str = ""

    @property
    def served(self) -> bool:
        """Whether the robot executed a segment."""
        return self.response_s >= 0

    @property
    def is_error(self) -> bool:
        """Whether it went wrong; a task that gave way to an urgent one did not."""
        return self.outcome in ("error", "failed")


# People.


@run_event
class PersonEvent(RunEvent):
    """A person began to ask.

    Attributes:
        slo_class: name of the service level.
        words_per_s: speed of listening, words a second.
    """

    agent: str
    slo_class: str
    words_per_s: float


@run_event
class QuestionEvent(RunEvent):
    """A person asked.

    Attributes:
        text: text of the question.
        conversation: name under which the server keeps the conversation; empty: it keeps none.
        turn: number of earlier turns of the conversation.
        mode: help that was asked for: progressive or auto; empty: none.
    """

    id: str
    agent: str
    text: str
    slo_class: str
    conversation: str
    turn: int
    mode: str = ""


@run_event
class HeardEvent(RunEvent):
    """A person received a piece of an answer.

    Attributes:
        index: number of the piece in its answer, from 0.
        text: text of the piece.
        part: number of the part of a cloud's sketch that it expands, from 1; 0: none.
    """

    id: str
    index: int
    text: str
    part: int = 0


@run_event
class AnsweredEvent(RunEvent):
    """A question ended for its person.

    Attributes:
        outcome: answered, canceled, forgotten, refused by a busy server, or error.
        ttft_s: time from the question to the first token, seconds; negative: no token.
        tpot_s: mean time between tokens, seconds; 0 with fewer than two.
        largest_gap_s: longest time between two tokens, seconds.
        completion_s: time from the question to the last token, seconds; negative: not complete.
        slo_met: whether the answer is complete and met its service level.
        stalls: number of times that the person waited for words.
        stalled_s: time in which the person waited for words, seconds.
        tokens: number of generated tokens.
        cut: whether the answer reached its most tokens before the model ended it.
        kept_tokens: number of prompt tokens with KV from earlier turns.
        helped: whether parts of a cloud's sketch are in the answer.
        cloud_tokens: number of tokens that a cloud generated.
        cloud_s: time in which a cloud worked on it, seconds.
        fallback: why a cloud that was asked for did not help, or not to the end; empty: it did.
    """

    id: str
    agent: str
    outcome: str
    error_code: int
    error_msg: str
    ttft_s: float
    tpot_s: float
    largest_gap_s: float
    completion_s: float
    slo_met: bool
    stalls: int
    stalled_s: float
    tokens: int
    cut: bool
    kept_tokens: int
    recomputed_tokens: int
    helped: bool = False
    cloud_tokens: int = 0
    cloud_s: float = 0.0
    fallback: str = ""

    @property
    def is_error(self) -> bool:
        """Whether it went wrong."""
        return self.outcome == "error"


RUN_EVENTS: tuple[type[RunEvent], ...] = (
    OpenedEvent, ReadyEvent,
    PlanRequestEvent, StreamEvent, StepPlanEvent, StepEvent, SegmentEvent, ChunkEvent, ReportEvent,
    CompleteEvent, AnswerEvent, ReplanEvent, EndEvent,
    RobotEvent, AskEvent, ReceiveEvent, CallEvent, StartEvent, FinishEvent, FailEvent,
    ReturnedEvent, DoneEvent,
    PersonEvent, QuestionEvent, HeardEvent, AnsweredEvent,
)  # fmt: skip
"""The events that event logs have, but for those of probes."""
