"""The server's side of a request."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum

from timely_llm.core.listener import Listener
from timely_llm.core.request import PlanRequest, Request
from timely_llm.core.segment import Segment
from timely_llm.core.stream import StreamRequest, mean_gap_s


class State(Enum):
    """Where a generation stands."""

    QUEUED = "queued"  # nothing delivered, in no step yet
    RUNNING = "running"  # was in the last step, and not at a boundary since
    SUSPENDED = "suspended"  # in no step plan for now; KV kept
    BLOCKED = "blocked"  # waits for a skill's return value
    EXECUTING = "executing"  # complete, and out of the engine; its robot still executes it
    ENDED = "ended"


@dataclass(eq=False)
class Tally:
    """What a request took: counts of tokens."""

    prompt_tokens: int = 0
    generated_tokens: int = 0
    recomputed_tokens: int = 0


@dataclass(eq=False)
class PlanTally(Tally):
    """What a plan request got, over all its epochs.

    Attributes:
        task: what was asked first.
        history: texts of the segments that the robot executed in earlier epochs.
        segments: delivered segments.
        response_s: from arrival to the first segment, seconds; negative before it.
        waiting_s: response time plus the times in which the robot had nothing to do, seconds.
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
    """One text being made for a request. Written by the serving loop, read by policies.

    Attributes:
        key: its name in the engine, the request's id.
        request: what is asked.
        arrival_s: when it was asked, on the loop's clock.
        prompt_tokens: tokens of the prompt, the shared prefix included.
        to_compute: tokens whose KV is not there yet: 1 to decode, more to prefill, 0 while it waits
            for a step in flight.
        context_tokens: tokens whose KV is there.
        shared_tokens: of these, tokens of a pinned prefix, whose KV is not its own.
        token_ids: generated so far.
        coming: tokens that steps in flight will bring.
        strikes: how often it was struck out of steps in flight.
        late_ids: tokens that came after it had been stopped: they are read when it goes on.
        segment_tokens: of these, since the last boundary: 0 where each token is one.
        max_tokens: most tokens it may generate.
        tally: what the request took so far.
        loading: its KV is on its way from elsewhere; policies do not see it until it is there.
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
    coming: int = 0
    strikes: int = 0
    late_ids: list[int] = field(default_factory=list)
    segment_tokens: int = 0
    max_tokens: int = 0
    tally: Tally = field(default_factory=Tally)
    loading: bool = False

    @property
    def kv_tokens(self) -> int:
        """Tokens whose KV is its own: what an eviction would free."""
        return self.context_tokens - self.shared_tokens

    def evicted(self) -> None:
        """Take note that its own KV was given up."""
        self.to_compute += self.kv_tokens
        self.context_tokens = self.shared_tokens

    def loaded(self, tokens: int) -> None:
        """Take note that KV of so many tokens has come from elsewhere; 0: it will not come."""
        self.loading = False
        self.to_compute -= tokens
        self.context_tokens += tokens

    @property
    def first(self) -> bool:
        """Whether its next deliverable is the first."""
        raise NotImplementedError

    @property
    def due_s(self) -> float:
        """When its next deliverable is needed, on the loop's clock."""
        raise NotImplementedError

    @property
    def zero_s(self) -> float:
        """When its next deliverable will be worth nothing."""
        raise NotImplementedError

    def overrun(self, now: float) -> None:
        """Take note of the time."""


@dataclass(eq=False)
class PlanGeneration(Generation):
    """One plan being made for a request.

    A request has one at a time; when a segment fails, the next epoch's takes its place.

    Attributes:
        segments: delivered.
        robot_free_s: when the robot will have executed all that was delivered.
        started, finished: the last segments that the robot reported so, -1 before the first.
        epoch: how often a failed segment has led to a new plan.
    """

    request: PlanRequest
    segments: list[Segment] = field(default_factory=list)
    robot_free_s: float = math.nan
    started: int = -1
    finished: int = -1
    epoch: int = 0
    tally: PlanTally = field(default_factory=PlanTally)

    @property
    def first(self) -> bool:
        """Whether its next deliverable is the first."""
        return not self.segments

    def overrun(self, now: float) -> None:
        """Take note of the time: a robot in the middle of a segment is not idle yet.

        Searches are predicted by their lower bound; until the robot reports that one has
        finished, it is busy, whatever was predicted.
        """
        if self.started > self.finished:
            self.robot_free_s = max(self.robot_free_s, now)

    @property
    def due_s(self) -> float:
        """When the next segment is needed: arrival + ert, later when the robot will be idle."""
        if self.first:
            return self.arrival_s + self.request.time_utility.ert_s
        return self.robot_free_s

    @property
    def zero_s(self) -> float:
        """When the next segment will be worth nothing."""
        return self.due_s + self.request.time_utility.grace_s

    def utility_at(self, ready_s: float) -> float:
        """Return the utility of its next segment if that is ready at `ready_s`.

        TUF0 of the response time for the first, TUF1 of the robot's idle time for later ones
        (paper 001, Eq. 3).
        """
        if self.first:
            return self.request.time_utility.value(ready_s - self.arrival_s)
        return self.request.time_utility.later_value(ready_s - self.robot_free_s)


@dataclass(eq=False)
class StreamGeneration(Generation):
    """One answer being made for a conversation: each token is a deliverable.

    Attributes:
        first_s, last_s: when the first and the newest token came, on the loop's clock.
        largest_gap_s: the longest time between two tokens, seconds.
        kept_tokens: of the prompt, tokens whose KV was there from earlier turns.
        listener: who consumes the words.
        pieces: the text of each token.
        cut: whether it has all the tokens that it may have, and no end of its own.
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
        """Whether its next token is the first."""
        return not (self.token_ids or self.coming)

    @property
    def due_s(self) -> float:
        """When the next token is needed, or the whole answer if that has a deadline.

        Tokens that came early are credit: the next one is due no sooner. Those in flight are taken
        to be there.
        """
        slo = self.request.slo
        if slo.real_time:
            return self.arrival_s + slo.deadline_s
        first_s = self.first_s if self.token_ids else self.arrival_s + slo.ttft_s
        return first_s + (len(self.token_ids) + self.coming) * slo.tpot_s

    @property
    def zero_s(self) -> float:
        """When the next token, or the whole answer, will be worth nothing."""
        slo = self.request.slo
        return self.due_s if slo.real_time else self.due_s + slo.tpot_s

    @property
    def tpot_s(self) -> float:
        """Mean seconds between its tokens so far, 0 with fewer than two."""
        return mean_gap_s(self.first_s, self.last_s, len(self.token_ids))

    def came(self, now: float) -> None:
        """Take note of a token's time; the token is in `token_ids` already."""
        if len(self.token_ids) == 1:
            self.first_s = now
        else:
            self.largest_gap_s = max(self.largest_gap_s, now - self.last_s)
        self.last_s = now


def by_kind(
    generations: Iterable[Generation],
) -> tuple[list[PlanGeneration], list[StreamGeneration]]:
    """Return the plans and the streams of some generations, each in their order."""
    plans: list[PlanGeneration] = []
    streams: list[StreamGeneration] = []
    for generation in generations:
        if isinstance(generation, PlanGeneration):
            plans.append(generation)
        elif isinstance(generation, StreamGeneration):
            streams.append(generation)
    return plans, streams
