"""Recorded requests: from the messages about a request to its outcome."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, replace

from timely_llm.core.errors import RequestError
from timely_llm.core.request import ErrorCode, ReportState
from timely_llm.core.slo import (
    FASTEST_WORDS_PER_S,
    READING_WORDS_PER_S,
    SLOWEST_WORDS_PER_S,
    Listener,
)
from timely_llm.experiments.recorded.messages import (
    RecordedDelivery,
    RecordedEnd,
    RecordedId,
    RecordedMessages,
    RecordedReport,
    RecordedRequest,
    recorded_requests,
)
from timely_llm.experiments.virtual.outcome import ConversationOutcome, ExecutedSegment, JobOutcome
from timely_llm.experiments.virtual.workload import JobInstance
from timely_llm.traces.model import Conversation, Job, TraceError
from timely_llm.traces.recordings.recorded import job_of
from timely_llm.traces.streams import conversation_of


@dataclass(frozen=True)
class RecordedOutcome:
    """A request and its end.

    Attributes:
        request_id: its own id.
        id: unique in the recording, even if several requests used its own id.
        asked_ns: time of its arrival.
        ended: its end; None if it was not recorded.
        finished: it ended without an error, and all of its answer was sent or its plan executed.
    """

    request_id: str
    id: str
    asked_ns: int
    ended: RecordedEnd | None
    finished: bool


@dataclass(frozen=True)
class RecordedConversation(RecordedOutcome):
    """A conversation and its answer.

    Attributes:
        conversation: the request, on the clock of the recording's first request. Its prompt has the
            tokens that earlier turns do not have.
        words_per_s: speed of its listener.
        tokens: the received tokens, each once, in order.
    """

    conversation: Conversation
    words_per_s: float
    tokens: tuple[RecordedDelivery, ...]

    @property
    def lost(self) -> int:
        """Number of generated tokens that are not in the recording."""
        made = self.ended.generated_tokens if self.ended is not None else 0
        return max(made - len(self.tokens), 0)

    def outcome(self, begin_ns: int) -> ConversationOutcome:
        """Return the listener's outcome; `begin_ns` is 0 s."""
        listener = Listener(self.words_per_s)
        times_s = tuple((token.time_ns - begin_ns) / 1e9 for token in self.tokens)
        for token, time_s in zip(self.tokens, times_s, strict=True):
            listener.receive(token.text, time_s)
        return ConversationOutcome(self.conversation, self.finished, times_s, listener.stalled_s)


def recorded_conversation(
    recorded: RecordedRequest[Conversation], begin_ns: int, results_known: bool
) -> RecordedConversation:
    """Return a conversation and its answer.

    Args:
        recorded: the request and its messages.
        begin_ns: the time of 0 s.
        results_known: the recording has results of conversations.

    Raises:
        TraceError: the request has impossible values.
        RequestError: its service level or its listener's speed is not possible.
    """
    tokens, ended = _tokens(recorded.messages.delivered, recorded.message.time_ns), recorded.ended
    if results_known:
        finished = ended is not None and ended.error_code == ErrorCode.NONE
    else:
        finished = any(token.final for token in tokens)
    return RecordedConversation(
        recorded.request_id, recorded.id, recorded.message.time_ns, ended,
        finished and bool(tokens), _conversation(recorded, begin_ns, len(tokens)),
        _words_per_s(recorded), tokens,
    )  # fmt: skip


def _tokens(delivered: Sequence[RecordedDelivery], asked_ns: int) -> tuple[RecordedDelivery, ...]:
    """Return each token once, by index, no earlier than its predecessor and the request."""
    first: dict[int, RecordedDelivery] = {}
    for token in delivered:
        first.setdefault(token.index, token)
    made: list[RecordedDelivery] = []
    free_ns = asked_ns
    for index in sorted(first):
        free_ns = max(first[index].time_ns, free_ns)
        made.append(replace(first[index], time_ns=free_ns))
    return tuple(made)


def _conversation(
    recorded: RecordedRequest[Conversation], begin_ns: int, tokens: int
) -> Conversation:
    arrival_s, known, ended = (
        (recorded.message.time_ns - begin_ns) / 1e9,
        recorded.messages.line,
        recorded.ended,
    )
    if recorded.message.message is None and known is not None:
        return replace(known, id=recorded.id, arrival_s=arrival_s)
    prompt_tokens = ended.new_tokens if ended is not None else 0
    generated_tokens = ended.generated_tokens if ended is not None else 0
    return conversation_of(
        recorded.message.message,
        recorded.id,
        arrival_s,
        prompt_tokens,
        max(generated_tokens, tokens),
    )


def _words_per_s(recorded: RecordedRequest[Conversation]) -> float:
    """Return the listener's speed, words a second; a reader's if the request has none.

    Raises:
        RequestError: the speed is out of range.
    """
    message = recorded.message.message
    words_per_s = float(message.words_per_s) if message is not None else 0.0
    if words_per_s and not SLOWEST_WORDS_PER_S <= words_per_s <= FASTEST_WORDS_PER_S:
        raise RequestError(f"{recorded.id}: words_per_s is {words_per_s:g}")
    return words_per_s or READING_WORDS_PER_S


MAX_WORTH = 1e9
"""Largest utility and steepest slope of a time utility that is accepted."""

EpochSegment = tuple[int, int]
"""Epoch and index of a segment."""


@dataclass(frozen=True)
class RecordedExecution:
    """The execution of a segment.

    Attributes:
        end_ns: None if the recording has no end.
        executed, failed: its robot reported FINISHED or FAILED; both are false without a report.
    """

    place: EpochSegment
    start_ns: int
    end_ns: int | None
    executed: bool
    failed: bool = False


@dataclass(frozen=True)
class RecordedPlan(RecordedOutcome):
    """A plan request, its segments and their executions.

    Attributes:
        job: the request, on the clock of the recording's first request.
        delivered: its segments, in order of time.
        spells: executions of its segments, in order of time.
    """

    job: Job
    delivered: tuple[RecordedDelivery, ...]
    spells: tuple[RecordedExecution, ...]

    def outcome(self, begin_ns: int, last_ns: int) -> JobOutcome:
        """Return the robot's outcome.

        Args:
            begin_ns: the time of 0 s.
            last_ns: the recording's end.
        """
        received_ns = {(d.epoch, d.index): d.time_ns for d in reversed(self.delivered)}
        made: list[ExecutedSegment] = []
        free_ns = self.asked_ns
        for spell in self.spells:  # a robot executes one segment at a time, whatever reports say
            start_ns = max(spell.start_ns, free_ns)
            free_ns = max(self._end_ns(spell, last_ns), start_ns)
            times_ns = (received_ns[spell.place], start_ns, free_ns)
            made.append(ExecutedSegment(*((time_ns - begin_ns) / 1e9 for time_ns in times_ns)))
        work = JobInstance(self.id, self.job, self.job.agent, self.job.arrival_s, True, ())
        return JobOutcome(work, self.finished, tuple(made))

    def _end_ns(self, spell: RecordedExecution, last_ns: int) -> int:
        """Return the end of a segment: at the latest that of its request or of the recording."""
        if spell.end_ns is not None:
            return spell.end_ns
        return last_ns if self.ended is None else self.ended.time_ns


@dataclass(frozen=True)
class RecordedRequests:
    """All requests in order of arrival, and the numbers of requests that are left out.

    Attributes:
        plans: plan requests.
        conversations: conversations.
        begin_ns: arrival of the first request.
        forgotten: questions that the server refused because it no longer had the conversation. The
            client sent the conversation again as another request.
        unknown: requests without a recorded content.
        impossible: requests that no server admits.
    """

    plans: tuple[RecordedPlan, ...]
    conversations: tuple[RecordedConversation, ...]
    begin_ns: int
    forgotten: int
    unknown: int
    impossible: int


def read_requests(messages: RecordedMessages) -> RecordedRequests:
    """Return the requests of a recording."""
    plans, unknown_plans = recorded_requests(messages.requests, messages)
    asked, unknown_streams = recorded_requests(messages.streams, messages)
    streams = [one for one in asked if not _forgotten(one)]
    begins_ns = [one.message.time_ns for one in plans] + [one.message.time_ns for one in streams]
    begin_ns = min(begins_ns, default=0)
    jobs: list[RecordedPlan] = []
    talks: list[RecordedConversation] = []
    for plan in plans:
        with contextlib.suppress(TraceError, RequestError):
            jobs.append(_plan(plan, _job(plan, begin_ns), messages.knows("PlanResult")))
    for stream in streams:
        with contextlib.suppress(TraceError, RequestError):
            talks.append(recorded_conversation(stream, begin_ns, messages.knows("StreamResult")))
    impossible = len(plans) + len(streams) - len(jobs) - len(talks)
    return RecordedRequests(
        tuple(jobs), tuple(talks), begin_ns, len(asked) - len(streams),
        unknown_plans + unknown_streams, impossible,
    )  # fmt: skip


def _forgotten(recorded: RecordedRequest[Conversation]) -> bool:
    return (
        recorded.ended is not None and recorded.ended.error_code == ErrorCode.UNKNOWN_CONVERSATION
    )


def _job(recorded: RecordedRequest[Job], begin_ns: int) -> Job:
    """Return the job of a request.

    Raises:
        TraceError: the request has impossible values.
        RequestError: its time utility is not possible.
    """
    arrival_s, known = (recorded.message.time_ns - begin_ns) / 1e9, recorded.messages.line
    if recorded.message.message is None and known is not None:
        return replace(known, id=recorded.id, arrival_s=arrival_s)
    job = job_of(recorded.message.message, recorded.id, arrival_s)
    utility = job.time_utility
    if max(utility.beta, -utility.alpha, utility.ert_s) > MAX_WORTH:
        raise TraceError(f"{recorded.id}: its time utility is beyond {MAX_WORTH:g}")
    if job.given:
        return job
    if known is None:
        return replace(job, task="urgent" if job.urgent else "normal")
    return replace(job, task=known.task, skill_times=known.skill_times, plan=known.plan)


def _plan(recorded: RecordedRequest[Job], job: Job, results_known: bool) -> RecordedPlan:
    about, ended = recorded.messages, recorded.ended
    spells = _spells({(d.epoch, d.index) for d in about.delivered}, about.reported)
    if results_known:
        complete = ended is not None and ended.error_code == ErrorCode.NONE
        epoch = ended.epoch if ended is not None else 0
    else:
        epoch = max((segment.epoch for segment in about.delivered), default=0)
        complete = any(s.final for s in about.delivered if s.epoch == epoch)
    finished = complete and _executed(epoch, about, spells)
    asked_ns = recorded.message.time_ns
    return RecordedPlan(
        recorded.request_id, recorded.id, asked_ns, ended, finished, job, tuple(about.delivered),
        spells,
    )  # fmt: skip


def _executed(epoch: int, about: RecordedId[Job], spells: Sequence[RecordedExecution]) -> bool:
    """Return whether all of an epoch was executed, or its robot reported RETURNED."""
    if any(r.state is ReportState.RETURNED and r.epoch == epoch for r in about.reported):
        return True
    places = {
        (segment.epoch, segment.index) for segment in about.delivered if segment.epoch == epoch
    }
    return bool(places) and places <= {spell.place for spell in spells if spell.executed}


def _spells(
    places: set[EpochSegment], reported: Sequence[RecordedReport]
) -> tuple[RecordedExecution, ...]:
    """Return the reported executions of the delivered segments."""
    starts_ns: dict[EpochSegment, int] = {}
    ends: dict[EpochSegment, RecordedReport] = {}
    returned_ns: dict[int, int] = {}
    for report in reported:
        place = report.epoch, report.index
        if report.state is ReportState.STARTED:
            starts_ns.setdefault(place, report.time_ns)
        elif report.state is ReportState.RETURNED:
            returned_ns.setdefault(report.epoch, report.time_ns)
        else:
            ends.setdefault(place, report)
    made: list[RecordedExecution] = []
    for place in places & (starts_ns.keys() | ends.keys()):
        end = ends.get(place)
        if end is None:
            made.append(
                RecordedExecution(place, starts_ns[place], returned_ns.get(place[0]), False)
            )
        elif place in starts_ns or end.duration_s is not None:
            # A report of an end without a start has the duration.
            took_ns = round(1e9 * min(end.duration_s or 0.0, 1e9))
            start_ns = starts_ns.get(place, end.time_ns - took_ns)
            done, failed = (end.state is s for s in (ReportState.FINISHED, ReportState.FAILED))
            made.append(RecordedExecution(place, start_ns, end.time_ns, done, failed))
    return tuple(sorted(made, key=lambda spell: (spell.start_ns, spell.place)))
