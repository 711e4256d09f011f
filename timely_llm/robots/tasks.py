"""Task sets: what a simulated fleet is asked, read from YAML."""

from __future__ import annotations

import string
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, model_validator

from timely_llm.core.documents import load_document
from timely_llm.core.errors import TimelyError
from timely_llm.core.time_utility import NORMAL, URGENT, TimeUtility
from timely_llm.robots.world import World

MOST_LOOSE = 3


class TaskSetError(TimelyError):
    """A task set cannot be read or is not valid."""


@dataclass(frozen=True)
class Task:
    """One task of one robot: what it is asked and the world it is asked in."""

    text: str
    urgent: bool
    world: World

    @property
    def time_utility(self) -> TimeUtility:
        """Its worth over time (paper 001 §7.1)."""
        return URGENT if self.urgent else NORMAL


class TaskSet(BaseModel):
    """Texts of normal and urgent tasks, with words that fill their {placeholders}.

    Attributes:
        loose: small things of which some lie around each robot, unless the task names its objects:
            the scene does not list them, a look does.
        failures: why a robot may fail to execute a segment.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    skill_set: str
    words: dict[str, list[str | int]]
    normal: list[str] = Field(min_length=1)
    urgent: list[str] = Field(min_length=1)
    loose: list[str] = []
    failures: list[str] = Field(["something is in the way"], min_length=1)

    @model_validator(mode="after")
    def _placeholders_have_words(self) -> TaskSet:
        for text in (*self.normal, *self.urgent):
            for name in placeholders(text):
                if not self.words.get(name):
                    raise ValueError(f"task {text!r}: there are no words for {{{name}}}")
        return self

    def draw(self, urgent: bool, rng: np.random.Generator) -> Task:
        """Return a task with its words filled in.

        A named object is in view, hidden or absent, at random; a named place or mover is in view.
        """
        text = str(rng.choice(self.urgent if urgent else self.normal))
        chosen = {name: self._word(name, rng) for name in placeholders(text)}
        seen = [str(chosen[name]) for name in ("place", "mover") if name in chosen]
        hidden: list[str] = []
        if "object" in chosen:
            where = rng.choice(["view", "hidden", "absent"], p=[0.3, 0.5, 0.2])
            seen += [str(chosen["object"])] * (where == "view")
            hidden += [str(chosen["object"])] * (where == "hidden")
        kind = "E" if urgent else "A"
        scene = f"Scene: [{', '.join(seen)}]"
        loose: list[str] = []
        if self.loose and "object" not in chosen:
            most = min(MOST_LOOSE, len(self.loose))
            loose = [str(n) for n in rng.permutation(self.loose)[: rng.integers(1, most + 1)]]
        world = World(seen, hidden, loose)
        return Task(f"{scene}\nTask: [{kind}] {text.format(**chosen)}", urgent, world)

    def _word(self, name: str, rng: np.random.Generator) -> str | int:
        words = self.words[name]
        return words[int(rng.integers(len(words)))]


def placeholders(text: str) -> list[str]:
    """Return the names in braces of a text, in order."""
    return [name for _, name, _, _ in string.Formatter().parse(text) if name]


def load_task_set(path: str | Path) -> TaskSet:
    """Return the task set in the YAML file at `path`.

    Raises:
        TaskSetError: one line naming the place and what is allowed there.
    """
    return load_document(path, TaskSet, "task set", TaskSetError)
