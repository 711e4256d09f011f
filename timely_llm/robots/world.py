"""Simulated perception: what a robot sees, and what it would find by looking around."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from timely_llm.core.segment import SkillCall, Value
from timely_llm.skills.skill_set import Skill


class World:
    """Objects around one robot: in view, or hidden until it looks around.

    Args:
        in_view: names of what the robot sees.
        hidden: names of what it sees after a search.
    """

    def __init__(self, in_view: Iterable[str] = (), hidden: Iterable[str] = ()) -> None:
        self._in_view = {name.lower() for name in in_view}
        self._hidden = {name.lower() for name in hidden}

    def sees(self, name: str) -> bool:
        """Return whether the object is in view."""
        return name.lower() in self._in_view

    def do(
        self, call: SkillCall, skill: Skill, rng: np.random.Generator, spread: float
    ) -> tuple[float, Value]:
        """Return how long a call takes, in seconds, and what it returns.

        A search (a scene-dependent skill) ends when the object is in view, after a random number
        of its steps, or after all of them if it is not there. Other skills that return a boolean
        say whether the object is in view; the rest return True.
        """
        name = next((str(a).lower() for a in call.arguments if isinstance(a, str)), "")
        duration = skill.duration
        if not duration.scene_dependent:
            value = self.sees(name) if skill.returns == "boolean" else True
            return duration.sample_s(call.arguments, rng, spread), value
        if self.sees(name):
            return duration.predict_s(call.arguments), True
        if name in self._hidden:
            self._hidden.remove(name)
            self._in_view.add(name)
            return duration.sample_s(call.arguments, rng, spread), True
        return duration.longest_s(call.arguments), False
