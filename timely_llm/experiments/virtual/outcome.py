"""What robots and people got in a run."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

from timely_llm.core.request import mean_gap_s
from timely_llm.experiments.virtual.workload import JobInstance
from timely_llm.traces.model import Conversation, Job


@dataclass(frozen=True)
class ExecutedSegment:
    """One segment at its robot: when it came, and when it was executed; the trace's seconds."""

    received_s: float
    start_s: float
    end_s: float


@dataclass(frozen=True)
class JobOutcome:
    """What a robot got for one request.

    Attributes:
        finished: the whole plan was executed, or all of it until its robot canceled it.
        segments: those that were executed.
    """

    work: JobInstance
    finished: bool
    segments: tuple[ExecutedSegment, ...]

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
class ConversationOutcome:
    """What a person, or a machine, got for one question.

    Attributes:
        finished: the whole answer came.
        times_s: when each of its tokens came, on the trace's clock.
        stalled_s: seconds in which its listener had to wait for words.
        cut: the answer ended at the most tokens that its request declares.
        refused: the server was busy and refused it at once.
    """

    conversation: Conversation
    finished: bool
    times_s: tuple[float, ...]
    stalled_s: float
    cut: bool = False
    refused: bool = False

    @property
    def ttft_s(self) -> float:
        """From asking to the first token, seconds; infinite if none came."""
        return self.times_s[0] - self.conversation.arrival_s if self.times_s else math.inf

    @property
    def tpot_s(self) -> float:
        """Mean seconds between its tokens, 0 with fewer than two."""
        if not self.times_s:
            return 0.0
        return mean_gap_s(self.times_s[0], self.times_s[-1], len(self.times_s))

    @property
    def completion_s(self) -> float:
        """From asking to the whole answer, seconds; infinite if not all of it came."""
        return self.times_s[-1] - self.conversation.arrival_s if self.finished else math.inf

    @property
    def largest_gap_s(self) -> float:
        """The longest time between two of its tokens, seconds."""
        return max((later - one for one, later in pairwise(self.times_s)), default=0.0)


@dataclass(frozen=True)
class Run:
    """What happened.

    Attributes:
        outcomes: one for each job, in order of arrival.
        steps: steps of the engine.
        busy_s: seconds in which the engine worked.
        span_s: from the first arrival to the end of the last request.
        generated_tokens: of all requests.
        conversations: one for each conversation, in order of arrival.
        evictions: how often the KV of a sequence was evicted.
        recomputed_tokens: tokens with KV that was computed a second time.
        loaded_tokens: tokens with KV that was loaded from host memory.
    """

    outcomes: tuple[JobOutcome, ...]
    steps: int
    busy_s: float
    span_s: float
    generated_tokens: int
    conversations: tuple[ConversationOutcome, ...] = ()
    evictions: int = 0
    recomputed_tokens: int = 0
    loaded_tokens: int = 0
