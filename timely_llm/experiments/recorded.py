"""A recorded bag, scored alone into the same rows as an experiment.

A request arrives when the server tells that it took it (topic `requests`), or else when it was
sent (`plan_requests`). A segment is executed from its robot's report STARTED to FINISHED or FAILED.
A request is finished if it ended without an error and its robot executed every segment of its last
epoch, or said that the plan returned. Segments of older epochs count as far as they were executed.
A conversation's answer is finished if it ended without an error; its listener hears its tokens.
All times are those at which the recorder received the messages.
"""

from __future__ import annotations

import math
import shlex
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from timely_llm.core.request import ErrorCode
from timely_llm.experiments.document import RunDocument, Timeline, Value
from timely_llm.experiments.lanes import TALK_DEFINITIONS, TALK_MEASURES
from timely_llm.experiments.metrics import DEFINITIONS
from timely_llm.experiments.outcome import Run
from timely_llm.experiments.recorded_about import Ended
from timely_llm.experiments.recorded_messages import Heard
from timely_llm.experiments.recorded_requests import Stories, stories
from timely_llm.experiments.recorded_timeline import recorded_timeline
from timely_llm.experiments.sweep import MEASURES, Scored
from timely_llm.traces.bags import bag_messages
from timely_llm.traces.model import TraceError

LIVE_DEFINITIONS = {
    **DEFINITIONS,
    **TALK_DEFINITIONS,
    "requests": "requests asked",
    "share_served": "of these, the share that ended without an error and was executed to its end",
    "conversations": "conversations and real-time tasks that were asked",
    "stalled_s": "time in which the listener of such an answer waited for words, seconds, mean",
}
"""What columns mean where nothing of a trace is left out."""


@dataclass(frozen=True)
class Recording:
    """What was recorded.

    Attributes:
        run: what robots and people got; 0 s is the arrival of the first request.
        timeline: the same in detail, or a part of it.
        messages: of the bag, of all kinds.
        span_s: from its first message to its last.
        results: how requests ended: names of error codes.
        notes: what a reader must know.
    """

    run: Run
    timeline: Timeline
    messages: int
    span_s: float
    results: Counter[str]
    notes: tuple[str, ...]


def score(path: Path) -> RunDocument:
    """Return what robots and people got, by the messages of a recorded bag.

    Args:
        path: a bag's folder, or one of its .mcap files.

    Raises:
        TraceError: one sentence; it cannot be read, or is no recording of a plan server.
    """
    recording = read_recording(path)
    scored = Scored.of(recording.run, {"recording": path.stem}, recording.timeline)
    run = recording.run
    setup: dict[str, Value] = {
        "bag": path.name,
        "span_s": round(recording.span_s, 3),
        "messages": recording.messages,
        "agents": len(
            {outcome.work.agent for outcome in run.outcomes}
            | {talk.conversation.agent for talk in run.talks}
        ),
        "steps": run.steps or None,
        "results": ", ".join(f"{n} {end}" for end, n in recording.results.most_common()) or None,
        "generated_tokens": run.generated_tokens,
    }
    return RunDocument(
        experiment="recording",
        question="What did those who asked get while this was recorded?",
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


def read_recording(path: Path) -> Recording:
    """Return what a bag tells of requests, robots and people.

    Raises:
        TraceError: one sentence; it cannot be read, or is no recording of a plan server.
    """
    cut_off: list[str] = []
    heard = Heard(bag_messages(path, cut_off.append), path)
    if not any(map(heard.knows, ("Segment", "PlanResult", "StreamChunk", "StreamResult"))):
        raise TraceError(
            f"{path} is no recording of a plan server: it has neither its segments nor its tokens"
            " nor its results, which `timely-llm trace record` records"
        )
    told = stories(heard)
    if not told.stories and not told.talks:
        raise TraceError(
            f"{path} has nothing to score: it does not say what was asked, neither by the topics"
            " requests and streams of a plan server nor by plan_requests and stream_requests"
        )
    run = _run(told, heard)
    return Recording(
        run,
        recorded_timeline(path.stem, run, told, heard),
        heard.kinds.total(),
        (heard.last_ns - heard.first_ns) / 1e9,
        Counter(map(_end, _ends(told))),
        (*cut_off, *_notes(told, heard)),
    )


def _run(told: Stories, heard: Heard) -> Run:
    outcomes = tuple(story.outcome(told.begin_ns, heard.last_ns) for story in told.stories)
    talks = tuple(story.talk(told.begin_ns) for story in told.talks)
    ends = _ends(told)
    ends_s = [(end.time_ns - told.begin_ns) / 1e9 for end in ends]
    ends_s += [part.end_s for one in outcomes for part in one.segments]
    ends_s += [talk.times_s[-1] for talk in talks if talk.times_s]
    return Run(
        outcomes=outcomes,
        steps=len(heard.steps),
        busy_s=math.fsum(step.duration_s for step in heard.steps),
        span_s=max(ends_s, default=0),
        generated_tokens=sum(end.generated_tokens for end in ends),
        talks=talks,
    )


def _ends(told: Stories) -> list[Ended]:
    ends = [story.ended for story in told.stories] + [talk.ended for talk in told.talks]
    return [end for end in ends if end is not None]


def _end(ended: Ended) -> str:
    known = ended.error_code in list(ErrorCode)
    return ErrorCode(ended.error_code).name if known else f"error {ended.error_code}"


def _notes(told: Stories, heard: Heard) -> Iterator[str]:
    """Yield what a reader must know, a sentence each."""
    if told.stories:
        yield from _plan_notes(told, heard)
    if told.talks:
        yield from _talk_notes(told, heard)
    if told.forgotten:
        yield (
            f"{told.forgotten} questions are left out, since the server had forgotten what came"
            " before: who asks then tells all of it anew"
        )
    if told.unknown:
        yield f"{told.unknown} requests are left out: what they asked was not recorded"
    taken = [about.taken for about in heard.requests.values()]
    taken += [about.taken for about in heard.streams.values()]
    if heard.nameless and not any(taken):
        yield f"{heard.nameless} requests without an id are left out: nobody knows how they ended"
    impossible = told.impossible + heard.impossible
    if impossible:
        yield f"{impossible} messages are left out: they say what cannot be"
    if not heard.steps:
        yield "steps of the engine were not recorded: a server publishes them with publish_steps"


def _plan_notes(told: Stories, heard: Heard) -> Iterator[str]:
    working = sum(story.ended is None for story in told.stories)
    if heard.knows("PlanResult") and working:
        yield f"{working} requests were still in work when the recording ended: not finished"
    if not heard.knows("PlanResult"):
        yield "the results were not recorded: finished is who executed a segment marked as the last"
    if not heard.knows("ExecutionReport"):
        yield "nothing was executed as far as is known: there are no reports of robots"
    if any(about.line is None for about in heard.requests.values() if about.taken or about.sent):
        yield "requests that are in no trace's line are of two kinds of tasks, urgent and normal"


def _talk_notes(told: Stories, heard: Heard) -> Iterator[str]:
    working = sum(talk.ended is None for talk in told.talks)
    if heard.knows("StreamResult") and working:
        yield f"{working} answers were still in work when the recording ended: not finished"
    if not heard.knows("StreamResult"):
        yield "results of answers were not recorded: finished is whose last token is marked so"
    if lost := sum(talk.lost for talk in told.talks):
        yield f"{lost} tokens are not in the recording: times between tokens look longer by that"
