"""Recipes of composed workloads, their notation for tasks, and the package's presets."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, RootModel, model_validator

from timely_llm.core.documents.read import load_document
from timely_llm.resources import resource
from timely_llm.traces.model import TraceError

MAX_GROUPS_CHARACTERS = 20_000
EXAMPLE = "{(1, 2), 8, 9}"

Groups = tuple[tuple[str, ...], ...]

_TASK = re.compile(r"[A-Za-z0-9_]+")
_WORD = re.compile(rf"\s*({_TASK.pattern}|[{{}}(),])")
_END = "the end"


def parse_groups(text: str) -> Groups:
    """Return the tasks of each event, in order; an event is one task or several in round brackets.

    The notation is that of Ling et al. 2024, §6, such as `EXAMPLE`.

    Raises:
        TraceError: the text is not in the notation; the sentence has the place.
    """
    if len(text) > MAX_GROUPS_CHARACTERS:
        raise TraceError(f"groups may have {MAX_GROUPS_CHARACTERS} characters, not {len(text)}")
    words = _Words(text)
    words.take("{")
    groups = [_group(words)]
    while words.next() == ",":
        words.take(",")
        groups.append(_group(words))
    words.take("}")
    words.take(_END)
    return tuple(groups)


def parse_tasks(text: str) -> tuple[str, ...]:
    """Return the names of tasks in a list such as "1-8, 10".

    Raises:
        TraceError: the text is not such a list.
    """
    names: list[str] = []
    for part in text.split(","):
        found = re.fullmatch(r"\s*([A-Za-z0-9_]+)\s*(?:-\s*([0-9]+)\s*)?", part)
        if not found:
            raise TraceError(f"{part.strip()!r} is not a task: tasks are written like 1-8, 10")
        first, last = found.groups()
        if last is None:
            names.append(first)
        elif not first.isdecimal() or not 0 <= int(last) - int(first) <= 1000:
            raise TraceError(f"{part.strip()!r} is not a range of tasks: ranges are like 1-8")
        else:
            names += [str(number) for number in range(int(first), int(last) + 1)]
    return tuple(dict.fromkeys(names))


class _Words:
    """The words and marks of a text."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._place = 0

    def next(self) -> str:
        found = _WORD.match(self._text, self._place)
        if found:
            return found[1]
        return self._text[self._place :].strip()[:1] or _END

    def take(self, *allowed: str) -> str:
        """Return the next word: one of `allowed`, or else the name of a task."""
        word = self.next()
        if not (word in allowed if allowed else _TASK.fullmatch(word)):
            wanted = " or ".join(repr(a) if a != _END else a for a in allowed) or "a task"
            got = word if word == _END else repr(word)
            where = len(self._text) - len(self._text[self._place :].lstrip()) + 1
            raise TraceError(
                f"groups {self._text[:60]!r}: {wanted} was expected at character {where},"
                f" not {got}; they are written like {EXAMPLE}"
            )
        if found := _WORD.match(self._text, self._place):
            self._place = found.end()
        return word


def _group(words: _Words) -> tuple[str, ...]:
    if words.next() != "(":
        return (words.take(),)
    words.take("(")
    tasks = [words.take()]
    while words.take(",", ")") == ",":
        tasks.append(words.take())
    return tuple(tasks)


Rate = Annotated[float, Field(ge=0, le=10_000, allow_inf_nan=False)]
Agents = Annotated[int, Field(ge=1, le=100_000)]


class Recipe(BaseModel):
    """A workload (Ling et al. 2024, §6).

    Attributes:
        description: one line about the workload.
        tasks: kinds of tasks, such as "1-8, 10"; each event draws some of them.
        groups: kinds of tasks of each event in order, such as "{(1, 2), 8, 9}", in place of
            `tasks`; the first group follows the last.
        events_per_s: mean events a second, Poisson (EPS).
        max_tasks: most tasks of an event that draws them (Max TPE).
        urgent_share: probability that a drawn task is urgent; None: all kinds are equally likely.
        agents: number of robots by the name of their skill set (AN).
        talks_per_s: mean conversations a second, Poisson.
        people: number of people.
        duration_s: time of the last possible event; None: `events` bounds the workload.
        events: most events; None: `duration_s` bounds the workload. Groups without both come once.
        seed: the same seed gives the same workload.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    description: str = ""
    tasks: str = ""
    groups: str = ""
    events_per_s: Rate = 0.25
    max_tasks: Annotated[int, Field(ge=1, le=10_000)] = 8
    urgent_share: Annotated[float, Field(ge=0, le=1)] | None = None
    agents: dict[str, Agents] = {}
    talks_per_s: Rate = 0.0
    people: Annotated[int, Field(ge=0, le=100_000)] = 0
    duration_s: Annotated[float, Field(gt=0, le=31_536_000)] | None = None
    events: Annotated[int, Field(ge=1, le=200_000)] | None = None
    seed: Annotated[int, Field(ge=0, le=2**31 - 1)] = 0

    @model_validator(mode="after")
    def _is_complete(self) -> Recipe:
        if self.tasks and self.groups:
            raise ValueError("tasks and groups: give one of them, not both")
        if not self.tasks and not self.groups and not self.talks_per_s:
            raise ValueError("there are no requests: give tasks, groups or talks_per_s")
        if (self.tasks or self.groups) and not self.events_per_s:
            raise ValueError("events_per_s must be above 0 for tasks and groups")
        if self.talks_per_s and not self.people:
            raise ValueError("talks_per_s needs people")
        if self.duration_s is None and (self.talks_per_s or not (self.groups or self.events)):
            raise ValueError("duration_s is needed to know when the workload ends")
        if self.urgent_share is not None and not self.tasks:
            raise ValueError("urgent_share needs tasks to draw from: give tasks")
        return self

    def names(self) -> tuple[str, ...]:
        """Return the kinds of tasks that events draw from.

        Raises:
            TraceError: they are not written like "1-8, 10".
        """
        return parse_tasks(self.tasks) if self.tasks else ()

    def sequence(self) -> Groups:
        """Return the kinds of tasks of each event in order.

        Raises:
            TraceError: they are not written like "{(1, 2), 8, 9}".
        """
        return parse_groups(self.groups) if self.groups else ()


class _Presets(RootModel[dict[str, Recipe]]):
    pass


def presets() -> dict[str, Recipe]:
    """Return the recipes that come with the package, by name.

    Raises:
        TraceError: a recipe is damaged.
    """
    path = resource("config/traces/presets.yaml")
    return load_document(path, _Presets, "presets", TraceError).root
