"""What robots got in a run."""

from __future__ import annotations

import math
from dataclasses import dataclass

from timely_llm.experiments.workload import Work
from timely_llm.traces.model import Job


@dataclass(frozen=True)
class Executed:
    """One segment at its robot: when it came, and when it was executed; the trace's seconds."""

    received_s: float
    start_s: float
    end_s: float


@dataclass(frozen=True)
class Outcome:
    """What a robot got for one request.

    Attributes:
        finished: the whole plan was executed.
        segments: those that were executed.
    """

    work: Work
    finished: bool
    segments: tuple[Executed, ...]

    @property
    def job(self) -> Job:
        """What was asked."""
        return self.work.job

    @property
    def served(self) -> bool:
        """Whether the robot could begin."""
        return bool(self.segments)

    @property
    def response_s(self) -> float:
        """From asking to the first action, seconds; infinite if there was none."""
        return self.segments[0].start_s - self.work.arrival_s if self.segments else math.inf

    @property
    def waiting_s(self) -> float:
        """The response time and the gaps between segments, seconds."""
        ends = [self.work.arrival_s, *(s.end_s for s in self.segments)]
        starts = (s.start_s for s in self.segments)
        return math.fsum(start - end for start, end in zip(starts, ends, strict=False))


@dataclass(frozen=True)
class Run:
    """What happened.

    Attributes:
        outcomes: one for each request, in order of arrival.
        steps: steps of the engine.
        busy_s: seconds in which the engine worked.
        span_s: from the first arrival to the end of the last request.
        generated_tokens: of all requests.
    """

    outcomes: tuple[Outcome, ...]
    steps: int
    busy_s: float
    span_s: float
    generated_tokens: int
