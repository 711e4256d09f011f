"""The timeline of a recording: from messages to what a journal would have said."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from operator import attrgetter
from typing import Any

from timely_llm.experiments.document import Timeline
from timely_llm.experiments.outcome import Run
from timely_llm.experiments.recorded_messages import Heard
from timely_llm.experiments.recorded_requests import Stories, Story
from timely_llm.experiments.recorded_talks import TalkStory
from timely_llm.experiments.timeline import busiest_window, timeline

MOST_DRAWN = 10_000
"""A timeline of more steps, segments and tokens shows only `WINDOW_S` of them."""
WINDOW_S = 60.0

_asked_ns = attrgetter("asked_ns")


def recorded_timeline(name: str, run: Run, told: Stories, heard: Heard) -> Timeline:
    """Return all of a short recording, and the busiest part of a long one."""
    events = [*_story_events(told, heard), *_talk_events(told), *_step_events(told, heard)]
    window = busiest_window(run, WINDOW_S) if len(events) > MOST_DRAWN else None
    return timeline(name, _unmeasured(run), events, window)


def _unmeasured(run: Run) -> Run:
    """Return a run whose segments are called by their texts, not by the skills of a trace."""
    outcomes = (
        replace(one, work=replace(one.work, job=replace(one.job, skill_times=())))
        for one in run.outcomes
    )
    return replace(run, outcomes=tuple(outcomes))


def _everything(told: Stories) -> list[Story | TalkStory]:
    return [*told.stories, *told.talks]


def _story_events(told: Stories, heard: Heard) -> Iterator[dict[str, Any]]:
    """Yield what a journal would have said of segments that were begun, and of ends."""
    for story in told.stories:
        texts = {(segment.epoch, segment.index): segment.text for segment in story.delivered}
        for index, spell in enumerate(story.spells):
            yield {"event": "segment", "id": story.id, "index": index, "text": texts[spell.place]}
    for one in _everything(told):
        end_ns = heard.last_ns if one.ended is None else one.ended.time_ns
        yield {"event": "end", "id": one.id, "t": (end_ns - told.begin_ns) / 1e9}


def _talk_events(told: Stories) -> Iterator[dict[str, Any]]:
    """Yield what a journal would have said of listeners, and of the tokens that came."""
    for talk in told.talks:
        yield {"event": "stream", "id": talk.id, "words_per_s": talk.words_per_s}
        for index, token in enumerate(talk.tokens):
            yield {"event": "chunk", "id": talk.id, "index": index, "text": token.text}


def _step_events(told: Stories, heard: Heard) -> list[dict[str, Any]]:
    """Return what a journal would have said of steps, in order."""
    uses: dict[str, list[Story | TalkStory]] = defaultdict(list)
    for story in sorted(_everything(told), key=_asked_ns):
        uses[story.request_id].append(story)
    made: list[dict[str, Any]] = []
    for step in heard.steps:
        places = ((one, bisect_right(uses[one], step.time_ns, key=_asked_ns)) for one in step.ids)
        ids = [uses[one][place - 1].id for one, place in places if place]
        start_s = (step.time_ns - told.begin_ns) / 1e9 - step.duration_s
        made.append({"event": "step", "t": start_s, "s": step.duration_s, "ids": ids})
    return sorted(made, key=lambda event: event["t"])
