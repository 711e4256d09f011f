"""The server's side of a request."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from enum import Enum

from timely_llm.core.request import PlanRequest
from timely_llm.core.segment import Segment


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
    """What a request got, over all its epochs.

    Attributes:
        task: what was asked first.
        history: texts of the segments that the robot executed in earlier epochs.
        segments: delivered segments.
        response_s: from arrival to the first segment, seconds; negative before it.
        waiting_s: response time plus the times in which the robot had nothing to do, seconds.
        utility: time utility of the response time, not clamped.
        prompt_tokens, generated_tokens, recomputed_tokens: counts of tokens.
    """

    task: str = ""
    history: list[str] = field(default_factory=list)
    segments: int = 0
    response_s: float = -1.0
    waiting_s: float = 0.0
    utility: float = 0.0
    prompt_tokens: int = 0
    generated_tokens: int = 0
    recomputed_tokens: int = 0


@dataclass(eq=False)
class Generation:
    """One plan being made for a request. Written by the serving loop, read by policies.

    A request has one at a time; when a segment fails, the next epoch's takes its place.

    Attributes:
        key: its name in the engine, the request's id.
        request: what is asked in this epoch.
        arrival_s: when it was asked, on the loop's clock.
        prompt_tokens: tokens of the prompt, the shared prefix included.
        to_compute: tokens whose KV is not there yet: 1 to decode, more to prefill.
        context_tokens: tokens whose KV is there.
        shared_tokens: of these, tokens of a pinned prefix, whose KV is not its own.
        segment_tokens: tokens generated since the last boundary.
        robot_free_s: when the robot will have executed all that was delivered.
        started, finished: the last segments that the robot reported so, -1 before the first.
        max_tokens: most tokens it may generate.
        epoch: how often a failed segment has led to a new plan.
        tally: what the request got so far.
    """

    key: str
    request: PlanRequest
    arrival_s: float
    prompt_tokens: int
    to_compute: int
    context_tokens: int = 0
    shared_tokens: int = 0
    state: State = State.QUEUED
    token_ids: list[int] = field(default_factory=list)
    segments: list[Segment] = field(default_factory=list)
    segment_tokens: int = 0
    robot_free_s: float = math.nan
    started: int = -1
    finished: int = -1
    max_tokens: int = 0
    epoch: int = 0
    tally: Tally = field(default_factory=Tally)

    @property
    def first(self) -> bool:
        """Whether its next deliverable is the first."""
        return not self.segments

    @property
    def kv_tokens(self) -> int:
        """Tokens whose KV is its own: what an eviction would free."""
        return self.context_tokens - self.shared_tokens

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
