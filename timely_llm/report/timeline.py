"""The model of a timeline: lanes of bars and marks on one time axis, and the engine's steps.

It is pure data and knows no colours. An event log, a recording and a run document each become one;
`png`, `html` and `terminal` draw it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Literal

from timely_llm.core.events.decisions import DecisionSpan
from timely_llm.core.step import StageTimes
from timely_llm.report.palette import Tone

BarKind = Literal[
    "waiting",
    "generating",
    "suspended",
    "blocked",
    "executing",
    "listening",
    "computing",
    "sending",
    "pre-empted",
    "failed",
]
MarkKind = Literal[
    "asked", "delivered", "due, met", "due, missed", "pre-empted", "canceled", "failed"
]

MODEL_KINDS: tuple[BarKind, ...] = ("suspended", "blocked", "generating", "computing")
"""Bars of the model's work, above the bars of the agent in a lane."""
AGENT_KINDS: tuple[BarKind, ...] = (
    "waiting", "executing", "listening", "sending", "pre-empted", "failed",
)  # fmt: skip

BARS: dict[BarKind, str] = {
    "waiting": "the robot has nothing to execute, or the listener has no words",
    "generating": "the request takes part in the engine's steps",
    "suspended": "in no step for now; its KV is kept",
    "blocked": "the plan waits for the value of a skill",
    "executing": "the robot executes a segment",
    "listening": "the listener has words to take in",
    "computing": "the stage computes a step; where a stage has no bar, it is idle",
    "sending": "a transfer to or from another stage keeps the stage from computing",
    "pre-empted": "cut short by a newer request of the same robot; nothing went wrong",
    "failed": "the robot could not execute it",
}
"""What each kind of bar means, in the order of legends."""
MARKS: dict[MarkKind, str] = {
    "asked": "the request arrives",
    "delivered": "a segment or the first token is published",
    "due, met": "a delivery was due here and had come",
    "due, missed": "a delivery was due here and came later",
    "pre-empted": "ended by a newer request of the same robot; nothing went wrong",
    "canceled": "ended by its client, with no newer request in its place",
    "failed": "the request ended with an error",
}
"""What each kind of mark means, in the order of legends."""
STAGE_KINDS = {
    False: ("stage computes", "a stage of the pipeline computes a step"),
    True: ("stage sends", "a transfer to or from the stage keeps it from computing"),
}
"""Name and meaning of each kind of work in the rows of stages; the rest of a row is idle."""
ONE_LOOK: tuple[BarKind, ...] = ("waiting", "failed")
"""Bars that look alike for all classes of requests."""
TONES: tuple[Tone, ...] = ("normal", "urgent", "answer", "failed")

SUSPENDED_S = {"normal": 0.15, "urgent": 0.15, "answer": 1.0, "failed": 0.15}
"""A shorter time between two steps of a request is not shown as suspended: tokens of an answer come
at the pace of its listener."""


@dataclass(frozen=True)
class Bar:
    """Something that lasts.

    Attributes:
        kind: what went on.
        tone: the class of the request.
        start_s, end_s: on the timeline's clock.
        request: its id.
        label: short enough to stand in the bar: a call, or what a person asked.
        server: of the model's work; empty: there is one server.
    """

    kind: BarKind
    tone: Tone
    start_s: float
    end_s: float
    request: str = ""
    label: str = ""
    server: str = ""

    @property
    def length_s(self) -> float:
        """How long it lasts, seconds."""
        return self.end_s - self.start_s


@dataclass(frozen=True)
class Mark:
    """A moment.

    Attributes:
        label: what was delivered or went wrong, or empty.
        late_s: by how much the delivery came after this due time, seconds; 0 if it came in time.
    """

    kind: MarkKind
    tone: Tone
    at_s: float
    request: str = ""
    label: str = ""
    late_s: float = 0.0


@dataclass(frozen=True)
class Lane:
    """One robot or one person."""

    agent: str
    bars: tuple[Bar, ...] = ()
    marks: tuple[Mark, ...] = ()

    @property
    def is_person(self) -> bool:
        """Whether all its requests are conversations."""
        tones = {bar.tone for bar in self.bars} | {mark.tone for mark in self.marks}
        return tones == {"answer"}

    @property
    def requests(self) -> list[str]:
        """The ids of its requests, in order of appearance."""
        names = [bar.request for bar in self.bars] + [mark.request for mark in self.marks]
        return list(dict.fromkeys(names))


@dataclass(frozen=True)
class StageSpan:
    """Work of one stage of a pipeline on one step.

    Attributes:
        start_s, end_s: on the timeline's clock.
        sends: whether the stage only sent or received; else it computed.
    """

    start_s: float
    end_s: float
    sends: bool


@dataclass(frozen=True)
class EngineStep:
    """One forward pass, and the number of sequences in its batch.

    Attributes:
        server: its server's name, if there are several.
        stages: its times in each stage of a pipeline; None: one stage, or not recorded.
    """

    start_s: float
    end_s: float
    sequences: int
    server: str = ""
    stages: StageTimes | None = None

    @property
    def stage_spans(self) -> list[list[StageSpan]]:
        """What each stage did; empty if it is not known when stages began.

        A transfer over a link ends when the stage after it begins.
        """
        if self.stages is None or not self.stages.begins_s:
            return []
        begins_s, stage_s, link_s, blocked_s, _ = self.stages
        spans = []
        for place, begin_s in enumerate(begins_s):
            at_s = self.start_s + begin_s
            mine = [StageSpan(at_s, at_s + stage_s[place], False)]
            if blocked_s[place]:
                mine += [
                    StageSpan(ended_s - link_s[link], ended_s, True)
                    for link in (place - 1, place)
                    if 0 <= link < len(link_s)
                    for ended_s in [self.start_s + begins_s[link + 1]]
                ]
            spans.append(mine)
        return spans


@dataclass(frozen=True)
class Timeline:
    """What happened in a run, or in a part of it; seconds since the run's first request.

    Attributes:
        title: one line.
        lanes: robots in order, then people in order.
        steps: of the engine, in order; empty if they were not recorded.
        window: start and end of what is shown; None shows all of it.
        decisions: of the policy, by request; empty if it was not asked to explain.
        outages: of several servers, by name: start and end of the times in which each was gone;
            empty: there is one server.
    """

    title: str
    lanes: tuple[Lane, ...] = ()
    steps: tuple[EngineStep, ...] = ()
    window: tuple[float, float] | None = None
    decisions: Mapping[str, Sequence[DecisionSpan]] = field(default_factory=dict, compare=False)
    outages: Mapping[str, Sequence[tuple[float, float]]] = field(
        default_factory=dict, compare=False
    )

    @property
    def servers(self) -> list[str]:
        """The names of several servers, or one empty name for the only one."""
        return list(self.outages) or [""]

    def steps_of(self, server: str) -> list[EngineStep]:
        """Return the steps of a server, in order."""
        return [step for step in self.steps if step.server == server]

    def stage_rows(self, server: str) -> list[list[StageSpan]]:
        """Return what each stage of a server did, in order; empty: one stage, or not recorded."""
        rows: list[list[StageSpan]] = []
        for step in self.steps_of(server):
            for place, spans in enumerate(step.stage_spans):
                if place == len(rows):
                    rows.append([])
                rows[place] += spans
        return [sorted(row, key=lambda span: span.start_s) for row in rows]

    @property
    def has_stages(self) -> bool:
        """Whether it is known what the stages of a pipeline did."""
        return any(step.stage_spans for step in self.steps)

    @property
    def limits(self) -> tuple[float, float]:
        """Start and end of the time axis, seconds."""
        if self.window is not None:
            return self.window
        times = [time_s for bar in self.bars for time_s in (bar.start_s, bar.end_s)]
        times += [mark.at_s for lane in self.lanes for mark in lane.marks]
        times += [time_s for step in self.steps for time_s in (step.start_s, step.end_s)]
        low, high = min(times, default=0.0), max(times, default=1.0)
        return low, max(high, low + 1e-3)

    @property
    def bars(self) -> list[Bar]:
        """The bars of all lanes."""
        return [bar for lane in self.lanes for bar in lane.bars]

    @property
    def most_sequences(self) -> int:
        """The largest batch."""
        return max((step.sequences for step in self.steps), default=1)

    def shown(self, start_s: float, end_s: float) -> Timeline:
        """Return the part of it between two moments; every lane stays."""

        def meets(low: float, high: float) -> bool:
            return high > start_s and low < end_s

        lanes = tuple(
            Lane(
                lane.agent,
                tuple(bar for bar in lane.bars if meets(bar.start_s, bar.end_s)),
                tuple(mark for mark in lane.marks if start_s <= mark.at_s <= end_s),
            )
            for lane in self.lanes
        )
        steps = tuple(step for step in self.steps if meets(step.start_s, step.end_s))
        return replace(self, lanes=lanes, steps=steps, window=(start_s, end_s))

    def bar_legend(self) -> list[tuple[BarKind, list[Tone]]]:
        """Return each kind of bar that occurs, with its tones, in a fixed order."""
        found: dict[BarKind, set[Tone]] = {}
        for bar in self.bars:
            found.setdefault(bar.kind, set()).add(bar.tone)
        made = [(kind, sorted(found[kind], key=TONES.index)) for kind in BARS if kind in found]
        return [(kind, tones[:1] if kind in ONE_LOOK else tones) for kind, tones in made]

    def mark_legend(self) -> list[MarkKind]:
        """Return each kind of mark that occurs and repeats no bar, in a fixed order."""
        found = {mark.kind for lane in self.lanes for mark in lane.marks}
        bars = {bar.kind for bar in self.bars}
        return [kind for kind in MARKS if kind in found and kind not in bars]


def due_mark(tone: Tone, due_s: float, delivered_s: float, request: str, label: str = "") -> Mark:
    """Return the mark of a due time: met, or missed with the seconds of delay."""
    late_s = max(delivered_s - due_s, 0.0)
    if not late_s:
        return Mark("due, met", tone, due_s, request, label)
    return Mark("due, missed", tone, due_s, request, label, late_s)


def in_order(lanes: Iterable[Lane]) -> tuple[Lane, ...]:
    """Return robots first, then people, each by name: `robot_10` comes after `robot_9`."""
    return tuple(sorted(lanes, key=lambda lane: (lane.is_person, natural(lane.agent))))


def natural(name: str) -> list[tuple[int, int, str]]:
    """Return a sort key by which numbers in names are compared as numbers."""
    parts = re.split(r"([0-9]+)", name)
    return [(1, int(part), "") if part.isdecimal() else (0, 0, part) for part in parts]


def suspensions(generating: Sequence[Bar]) -> Iterator[Bar]:
    """Yield the times between the steps of one request, in which its KV was kept."""
    for before, after in pairwise(generating):
        kept = before.server == after.server  # another server computes the KV anew
        if kept and after.start_s - before.end_s >= SUSPENDED_S[before.tone]:
            yield replace(
                before, kind="suspended", start_s=before.end_s, end_s=after.start_s, label=""
            )


def seconds_step(span_s: float, most: int) -> float:
    """Return the distance of ticks on a time axis: 1, 2 or 5 times a power of ten, seconds.

    Args:
        span_s: length of the axis, > 0.
        most: ticks at most.
    """
    least = span_s / max(most, 1)
    power = 10.0 ** math.floor(math.log10(least))
    return next(power * factor for factor in (1, 2, 5, 10) if power * factor >= least * (1 - 1e-9))


def ticks(low_s: float, high_s: float, most: int) -> list[float]:
    """Return the ticks of a time axis."""
    step_s = seconds_step(high_s - low_s, most)
    first, last = math.ceil(low_s / step_s - 1e-9), math.floor(high_s / step_s + 1e-9)
    return [round(number * step_s, 9) for number in range(first, last + 1)]


def busier_half(timeline: Timeline) -> Timeline:
    """Return half of a timeline: the part of this length with the most bars, of three."""
    low, high = timeline.limits
    quarter_s = (high - low) / 4
    starts = [low + place * quarter_s for place in range(3)]
    parts = [timeline.shown(start_s, start_s + 2 * quarter_s) for start_s in starts]
    return max(parts, key=lambda part: len(part.bars))
