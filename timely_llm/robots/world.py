"""Simulated perception: what a robot sees, and what it would find by looking around."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from timely_llm.core.segment import SkillCall, Value
from timely_llm.skills.skill import Skill


class World:
    """Objects around one robot: in view, or hidden until it looks around.

    Args:
        in_view: names of what the robot sees, in the order of its answers.
        hidden: names of what it sees after a search.
        loose: names of small things that lie around; where there are any, a skill that names what
            is there names them, and not the furniture in view.
    """

    def __init__(
        self, in_view: Iterable[str] = (), hidden: Iterable[str] = (), loose: Iterable[str] = ()
    ) -> None:
        self._in_view = {name.lower(): name for name in in_view}
        self._hidden = {name.lower(): name for name in hidden}
        self._loose = list(loose)

    def sees(self, name: str) -> bool:
        """Return whether the object is in view."""
        return name.lower() in self._in_view

    def do(
        self, call: SkillCall, skill: Skill, rng: np.random.Generator, spread: float
    ) -> tuple[float, Value]:
        """Return how long a call takes, in seconds, and what it returns.

        A search (a scene-dependent skill that returns a boolean) ends when the object is in view,
        after a random part of its time, or after all of it if the object is not there. Other
        skills take the time that the model predicts. A boolean is whether the object is in view, a
        text names the visible things, a number counts them, and a skill without a value gives True.
        """
        name = next((str(a).lower() for a in call.arguments if isinstance(a, str)), "")
        if skill.duration.scene_dependent and skill.returns == "boolean":
            return self._search(name, call, skill, rng, spread)
        return skill.duration.sample_s(call.arguments, rng, spread), self._perceive(name, skill)

    def _perceive(self, name: str, skill: Skill) -> Value:
        there = self._loose or list(self._in_view.values())
        match skill.returns:
            case "boolean":
                return self.sees(name)
            case "text":
                return ", ".join(there) or "nothing"
            case "number":
                return len(there)
            case _:
                return True

    def _search(
        self, name: str, call: SkillCall, skill: Skill, rng: np.random.Generator, spread: float
    ) -> tuple[float, Value]:
        if self.sees(name):
            return skill.duration.predict_s(call.arguments), True
        if name in self._hidden:
            self._in_view[name] = self._hidden.pop(name)
            return skill.duration.sample_s(call.arguments, rng, spread), True
        return skill.duration.longest_s(call.arguments), False
