"""One robot executing one plan, segment by segment. Pure logic: it is told the time."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from timely_llm.core.segment import SkillCall, Value
from timely_llm.robots.world import World
from timely_llm.skills.interpreter import Do, Ended, Interpreter, NeedMore
from timely_llm.skills.skill_set import SkillSet

INSTANT_S = 0.005
"""Calls shorter than this take no time: no timer is that exact."""


@dataclass(frozen=True)
class Happening:
    """Something that happened to a robot: "started", "finished" or "call".

    Attributes:
        index: the segment's index.
        at_s: when, on the caller's clock.
        duration_s: seconds the segment took (finished) or the call takes (call).
        skipped: the segment was in a block whose condition does not hold (finished).
        call: the call (call).
        value: what the segment's blocking call returned, if it made one (finished).
    """

    kind: str
    index: int
    at_s: float
    duration_s: float = 0.0
    skipped: bool = False
    call: SkillCall | None = None
    value: Value | None = None


class PlanRun:
    """Executes segments as they come and measures the robot's waiting.

    Args:
        skill_set: what the robot can do, and how long it takes.
        world: what it perceives.
        rng: randomness of durations.
        asked_s: when the plan was asked for.
        spread: standard deviation of the logarithm of true over predicted durations.
    """

    def __init__(
        self,
        skill_set: SkillSet,
        world: World,
        rng: np.random.Generator,
        asked_s: float,
        spread: float = 0.1,
    ) -> None:
        self._skill_set = skill_set
        self._world = world
        self._rng = rng
        self._spread = spread
        self._interpreter = Interpreter(skill_set)
        self._result: Value = True
        self._idle_since_s: float | None = asked_s
        self._asked_s = asked_s
        self._began_s: dict[int, float] = {}
        self._happenings: list[Happening] = []
        self.segments = 0
        self.wake_s: float | None = None
        self.response_s = -1.0
        self.waiting_s = 0.0
        self.ended = False
        self.returned = False

    def receive(self, index: int, text: str, final: bool, now: float) -> None:
        """Take a segment; one that came before changes nothing."""
        self.segments = max(self.segments, index + 1)
        self._interpreter.add(index, text, final)
        if self.wake_s is None and not self.ended:
            self._go_on(now)

    def wake(self, now: float) -> None:
        """Go on after the running call, whose end `wake_s` has come."""
        if self.wake_s is None or now < self.wake_s:
            return
        self.wake_s = None
        self._interpreter.resume(self._result)
        self._go_on(now)

    def complete(self, plan: str, now: float) -> None:
        """Take a whole plan, for segments of it that got lost on the way."""
        self._interpreter.complete(plan)
        if self.wake_s is None and not self.ended:
            self._go_on(now)

    def drain(self) -> list[Happening]:
        """Return what happened since the last call."""
        happenings, self._happenings = self._happenings, []
        return happenings

    def _go_on(self, now: float) -> None:
        """Execute until a call takes time, or there is nothing to execute."""
        while True:
            action = self._interpreter.next()
            if isinstance(action, Do) or (isinstance(action, Ended) and action.returned):
                self._busy(now)
            self._note_segments(now)
            if isinstance(action, NeedMore):
                if self._idle_since_s is None:
                    self._idle_since_s = now
                return
            if not isinstance(action, Do):
                self.ended, self.returned = True, action.returned
                return
            seconds, value = self._make(action.call)
            self._happenings.append(Happening("call", action.index, now, seconds, call=action.call))
            if seconds > INSTANT_S:
                self._result, self.wake_s = value, now + seconds
                return
            self._interpreter.resume(value)

    def _make(self, call: SkillCall) -> tuple[float, Value]:
        """Return how long a call takes, in seconds, and what it returns."""
        skill = self._skill_set.skills.get(call.name)
        if skill is None:  # a text to say or show
            return call.predicted_s * float(self._rng.lognormal(0.0, self._spread)), True
        return self._world.do(call, skill, self._rng, self._spread)

    def _busy(self, now: float) -> None:
        """The robot has something to do again: enter how long it had not."""
        if self._idle_since_s is None:
            return
        idle_s = now - self._idle_since_s
        self._idle_since_s = None
        self.waiting_s += idle_s
        if self.response_s < 0:
            self.response_s = now - self._asked_s

    def _note_segments(self, now: float) -> None:
        for event in self._interpreter.events():
            if event.kind == "started":
                self._began_s[event.index] = now
                self._happenings.append(Happening("started", event.index, now))
            else:
                took_s = now - self._began_s.get(event.index, now)
                self._happenings.append(
                    Happening(
                        "finished", event.index, now, took_s, event.skipped, value=event.value
                    )
                )

    @property
    def next_wake_s(self) -> float:
        """When it must be woken; infinite while it waits for a segment."""
        return math.inf if self.wake_s is None else self.wake_s
