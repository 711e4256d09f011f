"""A generation: the server's state of a request, which policies read."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum

from timely_llm.core.clock import SAME, RobotTime
from timely_llm.core.request import PlanRequest, Request, StreamRequest, mean_gap_s
from timely_llm.core.segment import Segment
from timely_llm.core.slo import Listener
from timely_llm.core.step import SequenceProgress
from timely_llm.core.time_utility import TimeUtility


class State(Enum):
    """State of a generation."""

    QUEUED = "queued"  # in no step so far
    RUNNING = "running"  # in the last step, no boundary since
    SUSPENDED = "suspended"  # in no step; its KV is kept
    BLOCKED = "blocked"  # waits for a skill's return value
    EXECUTING = "executing"  # the text is complete; the robot still executes it
    ENDED = "ended"


@dataclass(eq=False)
class Tally:
    """Tokens of a request over all its generations."""

    prompt_tokens: int = 0
    generated_tokens: int = 0
    recomputed_tokens: int = 0


@dataclass(eq=False)
class PlanTally(Tally):
    """Tokens, times and utility of a plan request over all its epochs.

    Attributes:
        task: the task of the first epoch.
        history: texts of the segments that the robot executed in earlier epochs.
        segments: number of delivered segments.
        response_s: arrival to first segment, robots' seconds; negative before the first segment.
        waiting_s: response time plus idle times of the robot, robots' seconds.
        utility: time utility of the response time, not clamped.
    """

    task: str = ""
    history: list[str] = field(default_factory=list)
    segments: int = 0
    response_s: float = -1.0
    waiting_s: float = 0.0
    utility: float = 0.0


@dataclass(eq=False)
class Generation:
    """One text that is generated for a request. The serving loop writes it; policies read it.

    Attributes:
        key: the request's id, which names the sequence in the engine.
        request: a plan request or a stream request.
        arrival_s: arrival of the request, on the loop's clock.
        prompt_tokens: tokens of the prompt, shared prefix included.
        to_compute, context_tokens, shared_tokens, pending_tokens, loading: progress of the
            sequence, as its engine has returned it last; see `SequenceProgress`. Policies do not
            see a generation that is loading.
        state: where it is between arrival and end.
        token_ids: tokens that were generated so far.
        deferred_ids: tokens that were generated past a boundary; they are read when the generation
            goes on.
        segment_tokens: tokens since the last boundary; 0 for a stream.
        max_tokens: most tokens to generate.
        tally: tokens and times of the request so far.
        complete: whether the text came to its own end, or an answer to its most tokens.
    """

    key: str
    request: Request
    arrival_s: float
    prompt_tokens: int
    to_compute: int
    context_tokens: int = 0
    shared_tokens: int = 0
    state: State = State.QUEUED
    token_ids: list[int] = field(default_factory=list)
    pending_tokens: int = 0
    deferred_ids: list[int] = field(default_factory=list)
    segment_tokens: int = 0
    max_tokens: int = 0
    tally: Tally = field(default_factory=Tally)
    complete: bool = False
    loading: bool = False

    @property
    def given(self) -> bool:
        """Whether the text came with the request.

        Engine and policies never see a given generation.
        """
        return False

    @property
    def kv_tokens(self) -> int:
        """KV tokens of its own; see `SequenceProgress.kv_tokens`."""
        return self.context_tokens - self.shared_tokens

    @property
    def progress(self) -> SequenceProgress:
        """Progress of the sequence, in one value."""
        return SequenceProgress(
            self.to_compute,
            self.context_tokens,
            self.shared_tokens,
            self.pending_tokens,
            self.loading,
        )

    def set_progress(self, progress: SequenceProgress) -> None:
        """Store the progress that the engine has returned."""
        (
            self.to_compute,
            self.context_tokens,
            self.shared_tokens,
            self.pending_tokens,
            self.loading,
        ) = progress

    @property
    def first(self) -> bool:
        """Whether the next deliverable is the first one."""
        raise NotImplementedError

    @property
    def due_s(self) -> float:
        """When the next deliverable is due, on the loop's clock."""
        raise NotImplementedError

    @property
    def zero_s(self) -> float:
        """Zero point of the next deliverable, on the loop's clock: from then on it is worth 0."""
        raise NotImplementedError

    def overrun(self, now: float) -> None:
        """Move due times if the robot is busy for longer than predicted.

        Nothing for a stream; see `PlanGeneration`.
        """


@dataclass(eq=False)
class PlanGeneration(Generation):
    """One plan that is generated for a request.

    A request has one plan at a time; when a segment fails, the plan of the next epoch replaces it.
    All times are on the loop's clock; `robot_time` converts between the robot's seconds and the
    loop's.

    Attributes:
        segments: delivered segments.
        asked_s: arrival, moved when the rate changes, so that `(now - asked_s) * rate` is what the
            robot has waited.
        robot_free_s: when the robot will have executed all delivered segments.
        robot_time: robots' seconds on the loop's clock.
        time_utility: the request's, over seconds of the loop.
        started, finished: index of the newest segment that was reported so; -1: none.
        epoch: plans of this request that failed before this one.
    """

    request: PlanRequest
    segments: list[Segment] = field(default_factory=list)
    asked_s: float = math.nan
    robot_free_s: float = math.nan
    robot_time: RobotTime = SAME
    time_utility: TimeUtility = field(init=False)
    started: int = -1
    finished: int = -1
    epoch: int = 0
    tally: PlanTally = field(default_factory=PlanTally)

    def __post_init__(self) -> None:
        if math.isnan(self.asked_s):
            self.asked_s = self.arrival_s
        self.time_utility = self.request.time_utility.at_rate(self.robot_time.rate)

    @property
    def rate(self) -> float:
        """Robots' seconds per second of the loop."""
        return self.robot_time.rate

    def retime(self, robot_time: RobotTime) -> None:
        """Move all due times to a new rate of robots' time."""
        before = self.robot_time
        self.asked_s = robot_time.to_loop(before.to_robot(self.asked_s))
        self.robot_free_s = robot_time.to_loop(before.to_robot(self.robot_free_s))
        self.robot_time = robot_time
        if robot_time.rate != before.rate:
            self.time_utility = self.request.time_utility.at_rate(robot_time.rate)

    @property
    def given(self) -> bool:
        """Whether the plan was written by hand and came with the request."""
        return bool(self.request.given_plan)

    @property
    def first(self) -> bool:
        """Whether the next segment is the first one."""
        return not self.segments

    def overrun(self, now: float) -> None:
        """Move `robot_free_s` to `now` if the robot still executes a segment.

        A search is predicted by its lower bound, so it often takes longer than predicted. The robot
        is busy until it reports the end.
        """
        if self.started > self.finished:
            self.robot_free_s = max(self.robot_free_s, now)

    @property
    def due_s(self) -> float:
        """When the next segment is due: arrival + ert for the first, else the robot's idle time."""
        if self.first:
            return self.asked_s + self.time_utility.ert_s
        return self.robot_free_s

    @property
    def zero_s(self) -> float:
        """Zero point of the next segment, on the loop's clock."""
        return self.due_s + self.time_utility.grace_s

    def utility_at(self, ready_s: float) -> float:
        """Return the utility of the next segment if it is ready at `ready_s`; may be negative.

        First segment: TUF0 of the response time. Later segments: TUF1 of the robot's idle time
        (Ling et al. 2024, Eq. 3).
        """
        if self.first:
            return self.time_utility.value(ready_s - self.asked_s)
        return self.time_utility.later_value(ready_s - self.robot_free_s)


@dataclass(eq=False)
class StreamGeneration(Generation):
    """One answer that is generated for a conversation; each token is a deliverable.

    Attributes:
        first_s, last_s: time of the first and of the newest token, on the loop's clock.
        largest_gap_s: longest time between two tokens, seconds.
        kept_tokens: prompt tokens with KV from earlier turns.
        listener: consumer of the words.
        pieces: text of each token.
        cut: whether the answer reached `max_tokens` before the model ended it.
    """

    request: StreamRequest
    first_s: float = math.nan
    last_s: float = math.nan
    largest_gap_s: float = 0.0
    kept_tokens: int = 0
    listener: Listener = field(default_factory=Listener)
    pieces: list[str] = field(default_factory=list)
    cut: bool = False

    @property
    def first(self) -> bool:
        """Whether the next token is the first one; in-flight tokens count as delivered."""
        return not (self.token_ids or self.pending_tokens)

    @property
    def due_s(self) -> float:
        """When the next token is due, or the whole answer if it has a deadline.

        Early tokens are credit: they make the next token due no sooner. In-flight tokens count as
        delivered.
        """
        slo = self.request.slo
        if slo.real_time:
            return self.arrival_s + slo.deadline_s
        first_s = self.first_s if self.token_ids else self.arrival_s + slo.ttft_s
        return first_s + (len(self.token_ids) + self.pending_tokens) * slo.tpot_s

    @property
    def zero_s(self) -> float:
        """Zero point of the next token, or of the whole answer, on the loop's clock."""
        slo = self.request.slo
        return self.due_s if slo.real_time else self.due_s + slo.tpot_s

    @property
    def tpot_s(self) -> float:
        """Mean seconds between tokens so far; 0 with fewer than two."""
        return mean_gap_s(self.first_s, self.last_s, len(self.token_ids))

    def token_arrived(self, now: float) -> None:
        """Record the arrival of a token that is in `token_ids` already."""
        if len(self.token_ids) == 1:
            self.first_s = now
        else:
            self.largest_gap_s = max(self.largest_gap_s, now - self.last_s)
        self.last_s = now


def by_kind(
    generations: Iterable[Generation],
) -> tuple[list[PlanGeneration], list[StreamGeneration]]:
    """Return the plans and the streams of `generations`, both in the given order."""
    plans: list[PlanGeneration] = []
    streams: list[StreamGeneration] = []
    for generation in generations:
        if isinstance(generation, PlanGeneration):
            plans.append(generation)
        elif isinstance(generation, StreamGeneration):
            streams.append(generation)
    return plans, streams
