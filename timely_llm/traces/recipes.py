"""Recipes: what a composed workload is made of, and those that come with the package."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, RootModel, model_validator

from timely_llm.core.documents import load_document
from timely_llm.resources import resource
from timely_llm.traces.groups import Groups, parse_groups, parse_tasks
from timely_llm.traces.model import TraceError

Rate = Annotated[float, Field(ge=0, le=10_000, allow_inf_nan=False)]
Agents = Annotated[int, Field(ge=1, le=100_000)]


class Recipe(BaseModel):
    """A workload (paper 001 §6).

    Attributes:
        description: one line about it.
        tasks: kinds of tasks that events choose of, such as "1-8, 10".
        groups: kinds of tasks of each event in order, such as "{(1, 2), 8, 9}", instead of a
            choice; after the last one the first comes again.
        events_per_s: mean events a second, Poisson (EPS).
        max_tasks: most tasks of one event, if they are chosen (Max TPE).
        urgent_share: probability that a chosen task is urgent; None: all kinds are as likely.
        agents: robots by the name of their skill set (AN).
        talks_per_s: mean conversations a second, Poisson.
        people: who talk.
        duration_s: no event after it; None: `events` decides.
        events: most events; None: `duration_s` decides. Groups without both come once.
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
            raise ValueError("nothing happens: give tasks, groups or talks_per_s")
        if (self.tasks or self.groups) and not self.events_per_s:
            raise ValueError("events_per_s must be above 0 for tasks and groups")
        if self.talks_per_s and not self.people:
            raise ValueError("talks_per_s needs people, who talk")
        if self.duration_s is None and (self.talks_per_s or not (self.groups or self.events)):
            raise ValueError("duration_s is needed to know when the workload ends")
        if self.urgent_share is not None and not self.tasks:
            raise ValueError("urgent_share is for tasks that are chosen: give tasks")
        return self

    def names(self) -> tuple[str, ...]:
        """Return the kinds of tasks that events choose of.

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
        TraceError: one of them is broken.
    """
    path = resource("config/traces/presets.yaml")
    return load_document(path, _Presets, "presets", TraceError).root
