"""The score of a recorded bag, in the same rows as those of an experiment.

A request arrives when the server publishes that it accepted it (topic `requests`), or else when it
was sent (`plan_requests`). A segment is executed from its robot's report STARTED to FINISHED or
FAILED. A request is finished if it ended without an error and its robot executed every segment of
its last epoch, or reported RETURNED. Executed segments of older epochs count too. A conversation
is finished if it ended without an error. All times are those at which the recorder received the
messages.
"""

from __future__ import annotations

import math
import shlex
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from operator import attrgetter
from pathlib import Path

from timely_llm.core.events.run_event import RunEvent
from timely_llm.core.events.schema import ChunkEvent, EndEvent, SegmentEvent, StepEvent, StreamEvent
from timely_llm.core.request import ErrorCode
from timely_llm.experiments.recorded.messages import RecordedEnd, RecordedMessages
from timely_llm.experiments.recorded.requests import (
    RecordedOutcome,
    RecordedRequests,
    read_requests,
)
from timely_llm.experiments.results.document import RowValue, RunDocument, TimelineDocument
from timely_llm.experiments.results.lanes import TALK_DEFINITIONS, TALK_MEASURES
from timely_llm.experiments.results.metrics import DEFINITIONS
from timely_llm.experiments.results.timeline import busiest_window, timeline
from timely_llm.experiments.sweep import MEASURES, Scored
from timely_llm.experiments.virtual.outcome import Run
from timely_llm.traces.model import TraceError
from timely_llm.traces.recordings.bags import bag_messages

MOST_DRAWN = 10_000
"""Most steps, segments and tokens of a timeline; a longer recording shows `WINDOW_S` of it."""
WINDOW_S = 60.0

_asked_ns = attrgetter("asked_ns")


def recorded_timeline(
    name: str, run: Run, requests: RecordedRequests, messages: RecordedMessages
) -> TimelineDocument:
    """Return all of a short recording, and the busiest part of a long one."""
    events = [
        *_conversation_events(requests),  # a request begins before its end
        *_plan_events(requests, messages),
        *_step_events(requests, messages),
    ]
    window = busiest_window(run, WINDOW_S) if len(events) > MOST_DRAWN else None
    return timeline(name, _unmeasured(run), events, window)


def _unmeasured(run: Run) -> Run:
    """Return a run with segments that are named by their texts, not by the skills of a trace."""
    outcomes = (
        replace(one, work=replace(one.work, job=replace(one.job, skill_times=())))
        for one in run.outcomes
    )
    return replace(run, outcomes=tuple(outcomes))


def _everything(requests: RecordedRequests) -> list[RecordedOutcome]:
    return [*requests.plans, *requests.conversations]


def _plan_events(requests: RecordedRequests, messages: RecordedMessages) -> Iterator[RunEvent]:
    """Yield the segments that robots began, as those of one epoch in this order, and the ends."""
    for plan in requests.plans:
        delivered = {(segment.epoch, segment.index): segment for segment in plan.delivered}
        for index, spell in enumerate(plan.spells):
            made = delivered[spell.place]
            yield SegmentEvent(
                _seconds(made.time_ns, requests), plan.id, index, 0, made.text,
                predicted_s=math.nan, final=made.final, blocking=False, due_s=math.nan,
            )  # fmt: skip
    for one in _everything(requests):
        end_ns, code = messages.last_ns, int(ErrorCode.NONE)
        if one.ended is not None:
            end_ns, code = one.ended.time_ns, one.ended.error_code
        yield EndEvent(_seconds(end_ns, requests), one.id, _code_name(code), "")


def _conversation_events(requests: RecordedRequests) -> Iterator[RunEvent]:
    """Yield listeners, and the tokens that came."""
    for talk in requests.conversations:
        asked = talk.conversation
        yield StreamEvent(
            asked.arrival_s, talk.id, asked.agent, asked.ttft_s, asked.tpot_s,
            None if asked.deadline_s == math.inf else asked.deadline_s, asked.weight,
            talk.words_per_s,
        )  # fmt: skip
        for index, token in enumerate(talk.tokens):
            yield ChunkEvent(
                _seconds(token.time_ns, requests), talk.id, index, token.text, token.final,
                due_s=math.nan, credit_s=0.0,
            )  # fmt: skip


def _step_events(requests: RecordedRequests, messages: RecordedMessages) -> list[StepEvent]:
    """Return the steps in order."""
    uses: dict[str, list[RecordedOutcome]] = defaultdict(list)
    for plan in sorted(_everything(requests), key=_asked_ns):
        uses[plan.request_id].append(plan)
    made: list[StepEvent] = []
    for step in messages.steps:
        places = ((one, bisect_right(uses[one], step.time_ns, key=_asked_ns)) for one in step.ids)
        ids = tuple(uses[one][place - 1].id for one, place in places if place)
        start_s = _seconds(step.time_ns, requests) - step.duration_s
        made.append(StepEvent(start_s, step.duration_s, ids, step.stages))
    return sorted(made, key=attrgetter("t"))


def _seconds(time_ns: int, requests: RecordedRequests) -> float:
    """Return a time of the recorder as seconds since the first request."""
    return (time_ns - requests.begin_ns) / 1e9


def _code_name(code: int) -> str:
    """Return an error code as event logs name it."""
    known = code in set(ErrorCode)
    return ErrorCode(code).name.lower() if known else str(code)


LIVE_DEFINITIONS = {
    **DEFINITIONS,
    **TALK_DEFINITIONS,
    "requests": "plan requests",
    "share_finished": "share of the plan requests that ended without an error and were executed to"
    " their end; a pre-empted plan was not",
    "conversations": "conversations and real-time tasks",
    "stalled_s": "time in which the listener of such an answer waited for words, seconds, mean",
}
"""Meanings of columns if no request of a trace is left out."""


@dataclass(frozen=True)
class RecordedRun:
    """A recorded run.

    Attributes:
        run: outcomes of requests; 0 s is the arrival of the first request.
        timeline: a timeline of all or a part of the run.
        messages: number of messages of the bag, of all types.
        span_s: seconds from its first message to its last.
        results: requests by the name of their error code.
        notes: limits of the recording, for its readers.
        requests: all requests, with the messages about them.
        first_ns: time of the bag's first message, nanoseconds since 1970.
    """

    run: Run
    timeline: TimelineDocument
    messages: int
    span_s: float
    results: Counter[str]
    notes: tuple[str, ...]
    requests: RecordedRequests
    first_ns: int


def score(path: Path) -> RunDocument:
    """Return the run document of a recorded bag.

    Args:
        path: a bag's folder, or one of its .mcap files.

    Raises:
        TraceError: the bag cannot be read, or is not a recording of a plan server.
    """
    return recording_document(read_recording(path), path)


def recording_document(recording: RecordedRun, path: Path) -> RunDocument:
    """Return the run document of a recording that was read from `path`."""
    scored = Scored.of(recording.run, {"recording": path.stem}, recording.timeline)
    run = recording.run
    setup: dict[str, RowValue] = {
        "bag": path.name,
        "span_s": round(recording.span_s, 3),
        "messages": recording.messages,
        "agents": len(
            {outcome.work.agent for outcome in run.outcomes}
            | {talk.conversation.agent for talk in run.conversations}
        ),
        "steps": run.steps or None,
        "results": ", ".join(f"{n} {end}" for end, n in recording.results.most_common()) or None,
        "generated_tokens": run.generated_tokens,
    }
    return RunDocument(
        experiment="recording",
        question="How were requests served while this was recorded?",
        command=shlex.join(["timely-llm", "report", path.name]),
        profile="the engine that was recorded",
        setup=setup,
        keys=("recording",),
        measures=(*MEASURES, *TALK_MEASURES),
        definitions={k: v for k, v in LIVE_DEFINITIONS.items() if k in scored.row},
        rows=(scored.row,),
        task_rows=scored.task_rows,
        notes=recording.notes,
        timelines=(recording.timeline,),
    )


def read_recording(path: Path) -> RecordedRun:
    """Return the recorded run of a bag.

    Raises:
        TraceError: the bag cannot be read, or is not a recording of a plan server.
    """
    cut_off: list[str] = []
    messages = RecordedMessages(bag_messages(path, cut_off.append), path)
    if not any(map(messages.knows, ("Segment", "PlanResult", "StreamChunk", "StreamResult"))):
        raise TraceError(
            f"{path} is no recording of a plan server: it has neither segments nor tokens nor"
            " results, which `timely-llm trace record` records"
        )
    requests = read_requests(messages)
    if not requests.plans and not requests.conversations:
        raise TraceError(
            f"{path} has nothing to score: it has no requests, neither on the topics requests and"
            " streams of a plan server nor on plan_requests and stream_requests"
        )
    run = _run(requests, messages)
    return RecordedRun(
        run,
        recorded_timeline(path.stem, run, requests, messages),
        messages.kinds.total(),
        (messages.last_ns - messages.first_ns) / 1e9,
        Counter(map(_end, _ends(requests))),
        (*cut_off, *_notes(requests, messages)),
        requests,
        messages.first_ns,
    )


def _run(requests: RecordedRequests, messages: RecordedMessages) -> Run:
    outcomes = tuple(plan.outcome(requests.begin_ns, messages.last_ns) for plan in requests.plans)
    talks = tuple(plan.outcome(requests.begin_ns) for plan in requests.conversations)
    ends = _ends(requests)
    ends_s = [(end.time_ns - requests.begin_ns) / 1e9 for end in ends]
    ends_s += [part.end_s for one in outcomes for part in one.segments]
    ends_s += [talk.times_s[-1] for talk in talks if talk.times_s]
    return Run(
        outcomes=outcomes,
        steps=len(messages.steps),
        busy_s=math.fsum(step.duration_s for step in messages.steps),
        span_s=max(ends_s, default=0),
        generated_tokens=sum(end.generated_tokens for end in ends),
        conversations=talks,
    )


def _ends(requests: RecordedRequests) -> list[RecordedEnd]:
    ends = [plan.ended for plan in requests.plans] + [talk.ended for talk in requests.conversations]
    return [end for end in ends if end is not None]


def _end(ended: RecordedEnd) -> str:
    known = ended.error_code in list(ErrorCode)
    return ErrorCode(ended.error_code).name if known else f"error {ended.error_code}"


def _notes(requests: RecordedRequests, messages: RecordedMessages) -> Iterator[str]:
    """Yield the limits of the recording, a sentence each."""
    if requests.plans:
        yield from _plan_notes(requests, messages)
    if requests.conversations:
        yield from _talk_notes(requests, messages)
    if requests.forgotten:
        yield (
            f"{requests.forgotten} questions are left out: the server no longer had their"
            " conversations, which clients sent again as other requests"
        )
    if requests.unknown:
        yield f"{requests.unknown} requests are left out: their content was not recorded"
    taken = [about.taken for about in messages.requests.values()]
    taken += [about.taken for about in messages.streams.values()]
    if messages.nameless and not any(taken):
        yield f"{messages.nameless} requests without an id are left out: their ends are not known"
    impossible = requests.impossible + messages.impossible
    if impossible:
        yield f"{impossible} messages are left out: they have impossible values"
    if not messages.steps:
        yield "steps of the engine were not recorded: a server publishes them with publish_steps"


def _in_service(lane: Iterable[RecordedOutcome], noun: str) -> Iterator[str]:
    if count := sum(one.ended is None for one in lane):
        yield f"{count} {noun} were still in service when the recording ended: not finished"


def _plan_notes(requests: RecordedRequests, messages: RecordedMessages) -> Iterator[str]:
    if messages.knows("PlanResult"):
        yield from _in_service(requests.plans, "requests")
    else:
        yield "results were not recorded: a plan is finished if its final segment was executed"
    if not messages.knows("ExecutionReport"):
        yield "executions are not known: there are no reports of robots"
    if given := sum(plan.job.given for plan in requests.plans):
        plans = "1 plan was" if given == 1 else f"{given} plans were"
        yield f"{plans} written by hand, not by a model: requests of the task given"
    if any(about.line is None for about in messages.requests.values() if about.taken or about.sent):
        yield "requests without a trace's line have one of two kinds of tasks, urgent and normal"


def _talk_notes(requests: RecordedRequests, messages: RecordedMessages) -> Iterator[str]:
    if messages.knows("StreamResult"):
        yield from _in_service(requests.conversations, "answers")
    else:
        yield "results of answers were not recorded: an answer is finished if its final token came"
    if lost := sum(talk.lost for talk in requests.conversations):
        yield f"{lost} tokens are not in the recording: times between tokens look longer"
