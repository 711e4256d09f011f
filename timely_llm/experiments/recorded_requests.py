"""From what a bag says of a request to what its robot got."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, replace

from timely_llm.core.errors import RequestError
from timely_llm.core.request import ErrorCode, ReportState
from timely_llm.core.time_utility import NORMAL, TimeUtility
from timely_llm.experiments.outcome import Executed, Outcome
from timely_llm.experiments.recorded_about import About, Delivered, Ended, Reported
from timely_llm.experiments.recorded_messages import Heard
from timely_llm.experiments.recorded_talks import TalkStory, talk_story
from timely_llm.experiments.recorded_uses import Use, uses
from timely_llm.experiments.workload import Work
from timely_llm.traces.model import Conversation, Job, TraceError

MAX_WORTH = 1e9
"""Largest worth of an answer, and steepest slope, that is taken for serious."""

Place = tuple[int, int]
"""Epoch and index of a segment."""


@dataclass(frozen=True)
class Spell:
    """A segment at its robot; without an end, the recording does not say when it ended."""

    place: Place
    start_ns: int
    end_ns: int | None
    executed: bool


@dataclass(frozen=True)
class Story:
    """One request from its arrival on.

    Attributes:
        request_id: its own.
        id: unique in the recording, even if an id was used more than once.
        asked_ns: when it arrived.
        job: what was asked, on the clock of the recording's first request.
        delivered: its segments, in order of time.
        spells: those that its robot began, in order of time.
        ended: how it ended, if that was recorded.
        finished: its plan was executed to its end, without an error.
    """

    request_id: str
    id: str
    asked_ns: int
    job: Job
    delivered: tuple[Delivered, ...]
    spells: tuple[Spell, ...]
    ended: Ended | None
    finished: bool

    def outcome(self, begin_ns: int, last_ns: int) -> Outcome:
        """Return what the robot got, in seconds.

        Args:
            begin_ns: what is 0 s.
            last_ns: the recording's end.
        """
        received_ns = {(d.epoch, d.index): d.time_ns for d in reversed(self.delivered)}
        made: list[Executed] = []
        free_ns = self.asked_ns
        for spell in self.spells:  # one after the other, whatever clocks and queues made of it
            start_ns = max(spell.start_ns, free_ns)
            free_ns = max(self._end_ns(spell, last_ns), start_ns)
            times_ns = (received_ns[spell.place], start_ns, free_ns)
            made.append(Executed(*((time_ns - begin_ns) / 1e9 for time_ns in times_ns)))
        work = Work(self.id, self.job, self.job.agent, self.job.arrival_s, True, ())
        return Outcome(work, self.finished, tuple(made))

    def _end_ns(self, spell: Spell, last_ns: int) -> int:
        """Return when a segment ended: at the latest with its request, or with the recording."""
        if spell.end_ns is not None:
            return spell.end_ns
        return last_ns if self.ended is None else self.ended.time_ns


@dataclass(frozen=True)
class Stories:
    """All requests in order of arrival, and how many requests nothing more is known of.

    Attributes:
        stories: requests of plans.
        talks: conversations.
        begin_ns: when the first of both arrived.
        forgotten: questions that a server turned away since it had forgotten what came before: who
            asked had to tell all of it anew, as another request.
        unknown: requests of which the recording does not say what was asked.
        impossible: requests that no server would take.
    """

    stories: tuple[Story, ...]
    talks: tuple[TalkStory, ...]
    begin_ns: int
    forgotten: int
    unknown: int
    impossible: int


def stories(heard: Heard) -> Stories:
    """Return the requests of a recording."""
    plans, unknown_plans = uses(heard.requests, heard)
    asked, unknown_streams = uses(heard.streams, heard)
    streams = [one for one in asked if not _forgotten(one)]
    begins_ns = [one.asked.time_ns for one in plans] + [one.asked.time_ns for one in streams]
    begin_ns = min(begins_ns, default=0)
    told: list[Story] = []
    talks: list[TalkStory] = []
    for plan in plans:
        with contextlib.suppress(TraceError, RequestError):
            told.append(_story(plan, _job(plan, begin_ns), heard.knows("PlanResult")))
    for stream in streams:
        with contextlib.suppress(TraceError, RequestError):
            talks.append(talk_story(stream, begin_ns, heard.knows("StreamResult")))
    impossible = len(plans) + len(streams) - len(told) - len(talks)
    return Stories(
        tuple(told), tuple(talks), begin_ns, len(asked) - len(streams),
        unknown_plans + unknown_streams, impossible,
    )  # fmt: skip


def _forgotten(use: Use[Conversation]) -> bool:
    return use.ended is not None and use.ended.error_code == ErrorCode.UNKNOWN_CONVERSATION


def _job(use: Use[Job], begin_ns: int) -> Job:
    """Return what was asked.

    Raises:
        TraceError: no request can be like that.
        RequestError: its time utility is not possible.
    """
    arrival_s, known = (use.asked.time_ns - begin_ns) / 1e9, use.about.line
    if use.asked.message is None and known is not None:
        return replace(known, id=use.id, arrival_s=arrival_s)
    request, given = use.asked.message, use.asked.message.time_utility
    utility = TimeUtility(given.beta, given.alpha, given.ert)
    if max(utility.beta, -utility.alpha, utility.ert_s) > MAX_WORTH:
        raise TraceError(f"{use.id}: its time utility is beyond {MAX_WORTH:g}")
    if utility == TimeUtility(0.0, 0.0, 0.0):  # nothing was filled in: a normal one
        utility = NORMAL
    job = Job(
        id=use.id,
        arrival_s=arrival_s,
        agent=request.agent,
        task="urgent" if utility.beta > NORMAL.beta else "normal",
        skill_set=request.skill_set,
        text=request.task,
        time_utility=utility,
    )
    if known is None:
        return job
    return replace(job, task=known.task, skill_times=known.skill_times, plan=known.plan)


def _story(use: Use[Job], job: Job, results_known: bool) -> Story:
    about, ended = use.about, use.ended
    spells = _spells({(d.epoch, d.index) for d in about.delivered}, about.reported)
    if results_known:
        complete = ended is not None and ended.error_code == ErrorCode.NONE
        epoch = ended.epoch if ended is not None else 0
    else:
        epoch = max((segment.epoch for segment in about.delivered), default=0)
        complete = any(s.final for s in about.delivered if s.epoch == epoch)
    finished = complete and _executed(epoch, about, spells)
    asked_ns = use.asked.time_ns
    return Story(
        use.request_id, use.id, asked_ns, job, tuple(about.delivered), spells, ended, finished
    )


def _executed(epoch: int, about: About[Job], spells: Sequence[Spell]) -> bool:
    """Return whether all of an epoch was executed, or its robot said that the plan returned."""
    if any(r.state is ReportState.RETURNED and r.epoch == epoch for r in about.reported):
        return True
    places = {
        (segment.epoch, segment.index) for segment in about.delivered if segment.epoch == epoch
    }
    return bool(places) and places <= {spell.place for spell in spells if spell.executed}


def _spells(places: set[Place], reported: Sequence[Reported]) -> tuple[Spell, ...]:
    """Return when segments began and ended, as reports say; only of those that were delivered."""
    starts_ns: dict[Place, int] = {}
    ends: dict[Place, Reported] = {}
    returned_ns: dict[int, int] = {}
    for report in reported:
        place = report.epoch, report.index
        if report.state is ReportState.STARTED:
            starts_ns.setdefault(place, report.time_ns)
        elif report.state is ReportState.RETURNED:
            returned_ns.setdefault(report.epoch, report.time_ns)
        else:
            ends.setdefault(place, report)
    made: list[Spell] = []
    for place in places & (starts_ns.keys() | ends.keys()):
        end = ends.get(place)
        if end is None:
            made.append(Spell(place, starts_ns[place], returned_ns.get(place[0]), False))
        elif place in starts_ns or end.duration_s is not None:
            # Whoever reports only ends says how long it took.
            took_ns = round(1e9 * min(end.duration_s or 0.0, 1e9))
            start_ns = starts_ns.get(place, end.time_ns - took_ns)
            made.append(Spell(place, start_ns, end.time_ns, end.state is ReportState.FINISHED))
    return tuple(sorted(made, key=lambda spell: (spell.start_ns, spell.place)))
