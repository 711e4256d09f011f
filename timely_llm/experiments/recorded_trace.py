"""A recorded run as a trace: the model says what it said, robots take the time that they took."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from timely_llm.engines.script_tokenizer import ScriptTokenizer
from timely_llm.experiments.recorded_messages import Heard
from timely_llm.experiments.recorded_requests import Spell, Story, stories
from timely_llm.traces.bags import bag_messages
from timely_llm.traces.model import Job, SkillTime, Trace, TraceError

log = logging.getLogger(__name__)


def recorded_trace(path: Path) -> Trace:
    """Return what was asked in a recorded bag, with the plans that were made and executed.

    Of a request with several epochs it is the plan of the last one. Conversations have the tokens
    that were computed of their prompts, and those of their answers. Requests that got no segment or
    no token are left out: nobody knows what the model would have said.

    Args:
        path: a bag's folder, or one of its .mcap files.

    Raises:
        TraceError: one sentence; it cannot be read, or no request in it was answered.
    """
    heard = Heard(bag_messages(path, log.warning), path)
    told = stories(heard)
    jobs = tuple(_jobs(told.stories))
    talks = tuple(story.conversation for story in told.talks if story.tokens)
    if not jobs and not talks:
        raise TraceError(
            f"{path} has no plan to be said again: it needs requests and the segments that answered"
            " them, as `timely-llm trace record` records them"
        )
    unanswered = len(told.stories) + len(told.talks) - len(jobs) - len(talks)
    if unanswered:
        log.warning("%s: %d requests without an answer are left out", path, unanswered)
    return Trace(path.stem, f"answers recorded in {path.stem}", jobs, talks)


def _jobs(told: tuple[Story, ...]) -> Iterator[Job]:
    encode = ScriptTokenizer().encode
    for story in told:
        epoch = max((segment.epoch for segment in story.delivered), default=0)
        texts = {s.index: s.text for s in reversed(story.delivered) if s.epoch == epoch and s.text}
        if not texts:
            continue
        spells = {spell.place[1]: spell for spell in story.spells if spell.place[0] == epoch}
        yield replace(
            story.job,
            plan="".join(texts[index] for index in sorted(texts)),
            segment_tokens=tuple(len(encode(texts[index])) for index in sorted(texts)),
            skill_times=tuple(
                SkillTime("segment", _seconds(spells.get(index))) for index in sorted(texts)
            ),
        )


def _seconds(spell: Spell | None) -> float:
    """Return how long a segment was executed; 0 if it never was, or nobody said when it ended."""
    if spell is None or spell.end_ns is None:
        return 0.0
    return max(spell.end_ns - spell.start_ns, 0) / 1e9
