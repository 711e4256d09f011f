"""Task sets of traces: what is asked, the plan that answers it, and what the robot then does."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

import numpy as np
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from timely_llm.core.errors import PlanError
from timely_llm.core.time_utility import NORMAL, URGENT, TimeUtility
from timely_llm.robots.world import World
from timely_llm.skills.interpreter import Do, Interpreter
from timely_llm.skills.minispec import check_plan
from timely_llm.skills.skill_set import SkillSet
from timely_llm.traces.model import MAX_NAME_CHARACTERS, SkillTime, TraceError

Name = Annotated[
    str, BeforeValidator(str), Field(pattern=r"^[A-Za-z0-9_]+$", max_length=MAX_NAME_CHARACTERS)
]
_Tokens = Annotated[int, Field(ge=1, le=100_000)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class TraceTask(_Strict):
    """A kind of task.

    Attributes:
        title: what it is about.
        skill_set: name of the robot's skill set.
        text: what is asked.
        plan: the reference plan, in the language of the skill set.
        urgent: whether it is of the urgent class (paper 001 §7.1).
        in_view: names of what the robot sees.
        hidden: names of what it finds when it looks around.
        segment_tokens: tokens of each segment that a model generates, empty if unknown.
    """

    title: str
    skill_set: str
    text: str = Field(min_length=1)
    plan: str = Field(min_length=1)
    urgent: bool = False
    in_view: tuple[str, ...] = ()
    hidden: tuple[str, ...] = ()
    segment_tokens: tuple[_Tokens, ...] = ()

    @property
    def time_utility(self) -> TimeUtility:
        """Its worth over time."""
        return URGENT if self.urgent else NORMAL

    def check(self, skill_set: SkillSet) -> None:
        """Find out whether the plan is one of the skill set's.

        Raises:
            PlanError: it is not.
        """
        if skill_set.language != "minispec":
            raise PlanError(
                f"a plan is executed in the language minispec, not {skill_set.language}"
            )
        check_plan(skill_set, self.plan)

    def execute(self, skill_set: SkillSet, rng: np.random.Generator) -> tuple[SkillTime, ...]:
        """Return what a robot executes of the plan, with times as the skill set's model has them.

        As in paper 001 §6: searches take sampled times, other skills what their arguments say.
        """
        interpreter, world = Interpreter(skill_set), World(self.in_view, self.hidden)
        interpreter.complete(self.plan)
        done = []
        while isinstance(action := interpreter.next(), Do):
            call = action.call
            seconds, value = world.do(call, skill_set.skills[call.name], rng, spread=0.0)
            done.append(SkillTime(call.name, seconds))
            interpreter.resume(value)
        return tuple(done)


class TraceTasks(_Strict):
    """Kinds of tasks by name."""

    tasks: dict[Name, TraceTask] = Field(min_length=1)

    def chosen(self, names: tuple[str, ...], skill_sets: Mapping[str, SkillSet]) -> None:
        """Find out whether tasks are there, with skill sets and plans that can be executed.

        Raises:
            TraceError: one sentence about the first that is not.
        """
        for name in dict.fromkeys(names):
            if name not in self.tasks:
                raise TraceError(f"there is no task {name}: choose of {', '.join(self.tasks)}")
            task = self.tasks[name]
            if task.skill_set not in skill_sets:
                raise TraceError(f"task {name} needs the skill set {task.skill_set}, which lacks")
            try:
                task.check(skill_sets[task.skill_set])
            except PlanError as error:
                raise TraceError(
                    f"task {name}: its plan is none of {task.skill_set}: {error}"
                ) from (error)


class Prompt(_Strict):
    """What a person asks, and the tokens that an answer typically has."""

    text: str = Field(min_length=1)
    tokens: _Tokens

    @property
    def prompt_tokens(self) -> int:
        """An estimate of its own tokens: four for three words."""
        return -(-4 * len(self.text.split()) // 3)


class Prompts(_Strict):
    """What people ask.

    Attributes:
        spread: standard deviation of the logarithm of true over typical tokens of an answer.
        least_tokens, most_tokens: bounds of an answer.
    """

    prompts: tuple[Prompt, ...] = Field(min_length=1)
    spread: Annotated[float, Field(ge=0, le=3)] = 0.0
    least_tokens: _Tokens = 1
    most_tokens: _Tokens = 4096

    def draw(self, rng: np.random.Generator) -> tuple[Prompt, int]:
        """Return a prompt and the tokens of its answer."""
        prompt = self.prompts[int(rng.integers(len(self.prompts)))]
        tokens = round(prompt.tokens * float(rng.lognormal(0.0, self.spread)))
        return prompt, int(np.clip(tokens, self.least_tokens, self.most_tokens))
