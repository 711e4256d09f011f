"""Task sets: what a simulated fleet is asked, from YAML, and the bursts in which it is asked."""

from __future__ import annotations

import string
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, model_validator

from timely_llm.core.documents.read import load_document
from timely_llm.core.errors import TimelyError
from timely_llm.core.text import echoed, quoted
from timely_llm.core.time_utility import NORMAL, URGENT, TimeUtility
from timely_llm.robots.world import World

MOST_LOOSE = 3
WordChoices = dict[str, list[str | int]]
"""What may fill each placeholder of some texts."""


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
        """Its worth over time (Ling et al. 2024, §7.1)."""
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
    words: WordChoices
    normal: list[str] = Field(min_length=1)
    urgent: list[str] = Field(min_length=1)
    loose: list[str] = []
    failures: list[str] = Field(["something is in the way"], min_length=1)

    @model_validator(mode="after")
    def _placeholders_have_words(self) -> TaskSet:
        check_words((*self.normal, *self.urgent), self.words)
        return self

    def draw(self, urgent: bool, rng: np.random.Generator) -> Task:
        """Return a task with its words filled in.

        A named object is in view, hidden or absent, at random; a named place or mover is in view.
        """
        text = str(rng.choice(self.urgent if urgent else self.normal))
        chosen = choose_words(text, self.words, rng)
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


def placeholders(text: str) -> list[str]:
    """Return the names in braces of a text, in order."""
    return [name for _, name, _, _ in string.Formatter().parse(text) if name]


def check_words(texts: Iterable[str], words: WordChoices) -> None:
    """Find out whether texts say something and every placeholder of theirs can be filled.

    Raises:
        ValueError: a text or a placeholder is empty, cannot be filled or has a format.
    """
    for text in texts:
        if not text.strip():
            raise ValueError(f"{text!r}: a text must say something")
        try:
            fields = list(string.Formatter().parse(text))
        except ValueError:
            raise ValueError(f"{text!r}: write {{{{ or }}}} for a brace that is text") from None
        for _, name, *form in fields:
            if name is not None and (not name or any(form)):
                raise ValueError(f"{text!r}: a placeholder must be a name in braces")
            if name and not words.get(name):
                raise ValueError(f"{quoted(text)}: there are no words for {{{echoed(name)}}}")


def choose_words(text: str, words: WordChoices, rng: np.random.Generator) -> dict[str, str | int]:
    """Return a word for each placeholder of a text."""
    return {name: words[name][int(rng.integers(len(words[name])))] for name in placeholders(text)}


def load_task_set(path: str | Path) -> TaskSet:
    """Return the task set in the YAML file at `path`.

    Raises:
        TaskSetError: one line naming the place and what is allowed there.
    """
    return load_document(path, TaskSet, "task set", TaskSetError)


@dataclass(frozen=True)
class Burst:
    """An event that hits several robots at once.

    Attributes:
        time_s: seconds after the start.
        urgent: for each robot it hits, whether its task is urgent.
    """

    time_s: float
    urgent: tuple[bool, ...]


def bursts(
    rng: np.random.Generator, events_per_s: float, max_tasks: int, urgent_share: float
) -> Iterator[Burst]:
    """Yield bursts for ever: exponential gaps, 1 to `max_tasks` tasks each.

    Args:
        rng: randomness.
        events_per_s: mean events per second (EPS of Ling et al. 2024, Table 3).
        max_tasks: most tasks of one event (Max TPE).
        urgent_share: probability that a task is urgent.
    """
    time_s = 0.0
    while True:
        time_s += float(rng.exponential(1.0 / events_per_s))
        tasks = int(rng.integers(1, max_tasks + 1))
        yield Burst(time_s, tuple(bool(u) for u in rng.random(tasks) < urgent_share))
