"""One robot executing one epoch of a plan. Pure logic: the caller gives the time."""

from __future__ import annotations

import math

import numpy as np

from timely_llm.core.segment import SkillCall, Value
from timely_llm.robots.epoch_run import EpochRun, ExecutionEvent
from timely_llm.robots.world import World
from timely_llm.skills.minispec.interpreter import Do, Ended, NeedMore
from timely_llm.skills.skill_set import SkillSet

INSTANT_S = 0.005
"""Calls shorter than this take no time: no timer is that exact."""


class PlanExecution(EpochRun):
    """Simulates a robot's calls and measures the robot's waiting.

    Args:
        skill_set: what the robot can do, and how long it takes.
        world: what it perceives.
        rng: randomness of durations.
        asked_s: when the plan was asked for.
        spread: standard deviation of the logarithm of true over predicted durations.

    Attributes:
        response_s: seconds from the request to the first call; negative: there was none yet.
        waiting_s: seconds in which the robot had nothing to do.
    """

    def __init__(
        self,
        skill_set: SkillSet,
        world: World,
        rng: np.random.Generator,
        asked_s: float,
        spread: float = 0.1,
    ) -> None:
        super().__init__(skill_set)
        self._skill_set = skill_set
        self._world = world
        self._rng = rng
        self._spread = spread
        self._result: Value = True
        self._idle_since_s: float | None = asked_s
        self._asked_s = asked_s
        self.response_s = -1.0
        self.waiting_s = 0.0

    def wake(self, now: float) -> None:
        """Go on after the running call once its end, `wake_s`, has come."""
        if self.call is None or now < self.wake_s:
            return
        self.wake_s = math.inf
        self.resume(self._result, now)

    def _begin(self, call: Do, now: float) -> Value | None:
        seconds, value = self._make(call.call)
        self._events.append(ExecutionEvent("call", call.index, now, seconds, call=call.call))
        if seconds <= INSTANT_S:
            return value
        self._result, self.wake_s = value, now + seconds
        return None

    def _make(self, call: SkillCall) -> tuple[float, Value]:
        """Return how long a call takes, in seconds, and what it returns."""
        skill = self._skill_set.skills.get(call.name)
        if skill is None:  # a text to say or show
            return call.predicted_s * float(self._rng.lognormal(0.0, self._spread)), True
        return self._world.do(call, skill, self._rng, self._spread)

    def _reached(self, action: Do | NeedMore | Ended, now: float) -> None:
        """Measure how long the robot has nothing to do."""
        if isinstance(action, NeedMore):
            if self._idle_since_s is None:
                self._idle_since_s = now
        elif self._idle_since_s is not None and (isinstance(action, Do) or action.returned):
            self.waiting_s += now - self._idle_since_s
            self._idle_since_s = None
            if self.response_s < 0:
                self.response_s = now - self._asked_s
