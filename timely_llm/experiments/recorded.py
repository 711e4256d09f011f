"""A recorded bag, scored alone into the same rows as an experiment.

A request arrives when the server tells that it took it (topic `requests`), or else when it was
sent (`plan_requests`). A segment is executed from its robot's report STARTED to FINISHED or FAILED.
A request is finished if it ended without an error and its robot executed every segment of its last
epoch, or said that the plan returned. Segments of older epochs count as far as they were executed.
All times are those at which the recorder received the messages.
"""

from __future__ import annotations

import math
import shlex
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from operator import attrgetter
from pathlib import Path
from typing import Any

from timely_llm.core.request import ErrorCode
from timely_llm.experiments.document import RunDocument, Timeline, Value
from timely_llm.experiments.metrics import DEFINITIONS
from timely_llm.experiments.outcome import Run
from timely_llm.experiments.recorded_messages import Ended, Heard
from timely_llm.experiments.recorded_requests import Stories, Story, stories
from timely_llm.experiments.sweep import MEASURES, Scored
from timely_llm.experiments.timeline import busiest_window, timeline
from timely_llm.traces.bags import bag_messages
from timely_llm.traces.model import TraceError

MOST_DRAWN = 10_000
"""A timeline of more steps and segments shows only `WINDOW_S` of them."""
WINDOW_S = 60.0

_asked_ns = attrgetter("asked_ns")

LIVE_DEFINITIONS = {
    **DEFINITIONS,
    "requests": "requests asked",
    "share_served": "of these, the share that ended without an error and was executed to its end",
}
"""What columns mean where nothing of a trace is left out."""


@dataclass(frozen=True)
class Recording:
    """What was recorded.

    Attributes:
        run: what robots got; 0 s is the arrival of the first request.
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
    """Return what robots got, by the messages of a recorded bag.

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
        "agents": len({outcome.work.agent for outcome in run.outcomes}),
        "steps": run.steps or None,
        "results": ", ".join(f"{n} {end}" for end, n in recording.results.most_common()) or None,
        "generated_tokens": run.generated_tokens,
    }
    return RunDocument(
        experiment="recording",
        question="What did robots get while this was recorded?",
        command=shlex.join(["timely-llm", "report", path.name]),
        profile="the engine that was recorded",
        setup=setup,
        keys=("recording",),
        measures=MEASURES,
        definitions=LIVE_DEFINITIONS,
        rows=(scored.row,),
        task_rows=scored.task_rows,
        notes=recording.notes,
        timelines=(recording.timeline,),
    )


def read_recording(path: Path) -> Recording:
    """Return what a bag tells of requests and robots.

    Raises:
        TraceError: one sentence; it cannot be read, or is no recording of a plan server.
    """
    cut_off: list[str] = []
    heard = Heard(bag_messages(path, cut_off.append), path)
    if not heard.knows("Segment") and not heard.knows("PlanResult"):
        raise TraceError(
            f"{path} is no recording of a plan server: it has neither its segments nor its results,"
            " which `timely-llm trace record` records"
        )
    told = stories(heard)
    if not told.stories:
        raise TraceError(
            f"{path} has nothing to score: it does not say what was asked, neither by the topic"
            " requests of a plan server nor by plan_requests"
        )
    run = _run(told, heard)
    return Recording(
        run,
        _timeline(path.stem, run, told, heard),
        heard.kinds.total(),
        (heard.last_ns - heard.first_ns) / 1e9,
        Counter(_end(story.ended) for story in told.stories if story.ended is not None),
        (*cut_off, *_notes(told, heard)),
    )


def _run(told: Stories, heard: Heard) -> Run:
    outcomes = tuple(story.outcome(told.begin_ns, heard.last_ns) for story in told.stories)
    ends = [story.ended for story in told.stories if story.ended is not None]
    ends_s = [(end.time_ns - told.begin_ns) / 1e9 for end in ends]
    return Run(
        outcomes=outcomes,
        steps=len(heard.steps),
        busy_s=math.fsum(step.duration_s for step in heard.steps),
        span_s=max(
            [*ends_s, *(part.end_s for one in outcomes for part in one.segments)], default=0
        ),
        generated_tokens=sum(end.generated_tokens for end in ends),
    )


def _timeline(name: str, run: Run, told: Stories, heard: Heard) -> Timeline:
    """Return all of a short recording, and the busiest part of a long one."""
    events = [*_story_events(told, heard), *_step_events(told, heard)]
    window = busiest_window(run, WINDOW_S) if len(events) > MOST_DRAWN else None
    return timeline(name, _unmeasured(run), events, window)


def _unmeasured(run: Run) -> Run:
    """Return a run whose segments are called by their texts, not by the skills of a trace."""
    outcomes = (
        replace(one, work=replace(one.work, job=replace(one.job, skill_times=())))
        for one in run.outcomes
    )
    return replace(run, outcomes=tuple(outcomes))


def _end(ended: Ended) -> str:
    known = ended.error_code in list(ErrorCode)
    return ErrorCode(ended.error_code).name if known else f"error {ended.error_code}"


def _story_events(told: Stories, heard: Heard) -> Iterator[dict[str, Any]]:
    """Yield what a journal would have said of segments that were begun, and of ends."""
    for story in told.stories:
        texts = {(segment.epoch, segment.index): segment.text for segment in story.delivered}
        for index, spell in enumerate(story.spells):
            yield {"event": "segment", "id": story.id, "index": index, "text": texts[spell.place]}
        end_ns = heard.last_ns if story.ended is None else story.ended.time_ns
        yield {"event": "end", "id": story.id, "t": (end_ns - told.begin_ns) / 1e9}


def _step_events(told: Stories, heard: Heard) -> list[dict[str, Any]]:
    """Return what a journal would have said of steps, in order."""
    uses: dict[str, list[Story]] = defaultdict(list)
    for story in told.stories:
        uses[story.request_id].append(story)
    made: list[dict[str, Any]] = []
    for step in heard.steps:
        places = ((one, bisect_right(uses[one], step.time_ns, key=_asked_ns)) for one in step.ids)
        ids = [uses[one][place - 1].id for one, place in places if place]
        start_s = (step.time_ns - told.begin_ns) / 1e9 - step.duration_s
        made.append({"event": "step", "t": start_s, "s": step.duration_s, "ids": ids})
    return sorted(made, key=lambda event: event["t"])


def _notes(told: Stories, heard: Heard) -> Iterator[str]:
    """Yield what a reader must know, a sentence each."""
    working = sum(story.ended is None for story in told.stories)
    if heard.knows("PlanResult") and working:
        yield f"{working} requests were still in work when the recording ended: not finished"
    if not heard.knows("PlanResult"):
        yield "the results were not recorded: finished is who executed a segment marked as the last"
    if not heard.knows("ExecutionReport"):
        yield "nothing was executed as far as is known: there are no reports of robots"
    if any(about.job is None for about in heard.requests.values() if about.taken or about.sent):
        yield "requests that are in no trace's line are of two kinds of tasks, urgent and normal"
    if told.unknown:
        yield f"{told.unknown} requests are left out: what they asked was not recorded"
    if heard.nameless and not any(about.taken for about in heard.requests.values()):
        yield f"{heard.nameless} requests without an id are left out: nobody knows how they ended"
    impossible = told.impossible + heard.impossible
    if impossible:
        yield f"{impossible} messages are left out: they say what cannot be"
    if not heard.steps:
        yield "steps of the engine were not recorded: a server publishes them with publish_steps"
