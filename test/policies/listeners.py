"""Streams at an engine whose steps take what a step-time model says, without a serving loop."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

from timely_llm.core.generation import State, StreamGeneration
from timely_llm.policies.contract import Capacity, Policy
from timely_llm.policies.step_time import StepTime


@dataclass
class Listeners:
    """What streams that never end got.

    Attributes:
        busy_s: seconds of steps.
        rested: (when, until when) the engine rested.
        times_s: when each stream's tokens came.
    """

    policy: Policy
    step_time: StepTime
    capacity: Capacity
    now: float = 0.0
    busy_s: float = 0.0
    rested: list[tuple[float, float]] = field(default_factory=list)
    times_s: dict[str, list[float]] = field(default_factory=dict)

    def serve(self, streams: Iterable[StreamGeneration], until_s: float) -> None:
        """Let streams come at their times, and serve them until then."""
        coming = sorted(streams, key=lambda stream: stream.arrival_s)
        here: list[StreamGeneration] = []
        while self.now < until_s:
            while coming and coming[0].arrival_s <= self.now:
                here.append(coming.pop(0))
            plan = self.policy.plan(self.now, here, self.step_time, self.capacity)
            if plan:
                self._step(dict(plan.entries), here)
                continue
            next_s = coming[0].arrival_s if coming else until_s
            wake_s = max(min(plan.wake_s, next_s, until_s), self.now + 1e-6)
            late = [s.key for s in here if s.due_s < self.now]
            assert not late, f"at {self.now} the engine rests, and {late} are behind their rates"
            self.rested.append((self.now, wake_s))
            self.now = wake_s

    def tokens(self, key: str, begin_s: float, end_s: float) -> int:
        """Return how many tokens a stream got in a time."""
        return sum(begin_s <= at_s < end_s for at_s in self.times_s.get(key, ()))

    def _step(self, entries: dict[str, int], here: Iterable[StreamGeneration]) -> None:
        parts = [stream for stream in here if stream.key in entries]
        rows = sum(entries[stream.key] == 1 for stream in parts)
        prefill = sum(tokens for tokens in entries.values() if tokens > 1)
        seconds = self.step_time.predict_s(rows, prefill, sum(s.context_tokens for s in parts))
        self.now += seconds
        self.busy_s += seconds
        for stream in parts:
            stream.state = State.RUNNING
            tokens = entries[stream.key]
            stream.context_tokens += tokens
            stream.to_compute -= tokens
            if stream.to_compute == 0:
                stream.to_compute = 1
                stream.token_ids.append(0)
                stream.came(self.now)
                self.times_s.setdefault(stream.key, []).append(self.now)


def behind_s(stream: StreamGeneration, now: float) -> float:
    """Return how long its next token has been due, seconds; below 0 if it is not due yet."""
    return now - stream.due_s if not math.isnan(stream.due_s) else -math.inf
