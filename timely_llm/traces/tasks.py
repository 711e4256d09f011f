"""Task sets of traces: texts of tasks, reference plans, and their execution."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

import numpy as np
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from timely_llm.core.errors import PlanError
from timely_llm.core.time_utility import NORMAL, URGENT, TimeUtility
from timely_llm.robots.world import World
from timely_llm.skills.minispec.checker import check_plan
from timely_llm.skills.minispec.interpreter import Do, Interpreter
from timely_llm.skills.skill_set import SkillSet
from timely_llm.traces.model import MAX_NAME_CHARACTERS, SkillTime, TraceError

Name = Annotated[
    str, BeforeValidator(str), Field(pattern=r"^[A-Za-z0-9_]+$", max_length=MAX_NAME_CHARACTERS)
]
_Tokens = Annotated[int, Field(ge=1, le=100_000)]


class _TaskModel(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class TraceTask(_TaskModel):
    """A kind of task.

    Attributes:
        title: short title.
        skill_set: name of the robot's skill set.
        text: text of the task.
        plan: the reference plan, in the language of the skill set.
        urgent: whether it is of the urgent class (Ling et al. 2024, §7.1).
        in_view: names of the objects in the robot's view.
        hidden: names of the objects that a search finds.
        segment_tokens: tokens of each generated segment; empty if unknown.
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
        """Its utility over time."""
        return URGENT if self.urgent else NORMAL

    def check(self, skill_set: SkillSet) -> None:
        """Check that the plan is valid for a skill set.

        Raises:
            PlanError: it is not.
        """
        if skill_set.language != "minispec":
            raise PlanError(
                f"plans can be executed in the language minispec only, not {skill_set.language}"
            )
        check_plan(skill_set, self.plan)

    def execute(self, skill_set: SkillSet, rng: np.random.Generator) -> tuple[SkillTime, ...]:
        """Execute the plan; return the executed skills with the times of the skill set's model.

        As in Ling et al. 2024, §6, searches take sampled times. The times of other skills follow
        from their arguments.
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


class TraceTasks(_TaskModel):
    """Kinds of tasks by name."""

    tasks: dict[Name, TraceTask] = Field(min_length=1)

    def chosen(self, names: tuple[str, ...], skill_sets: Mapping[str, SkillSet]) -> None:
        """Check that tasks exist, with known skill sets and valid plans.

        Raises:
            TraceError: a task does not.
        """
        for name in dict.fromkeys(names):
            if name not in self.tasks:
                raise TraceError(f"there is no task {name}: choose of {', '.join(self.tasks)}")
            task = self.tasks[name]
            if task.skill_set not in skill_sets:
                raise TraceError(f"task {name} needs the skill set {task.skill_set}, not given")
            try:
                task.check(skill_sets[task.skill_set])
            except PlanError as error:
                raise TraceError(
                    f"task {name}: its plan is not valid for {task.skill_set}: {error}"
                ) from error


class Prompt(_TaskModel):
    """The prompt of a person, and the typical tokens of its answer."""

    text: str = Field(min_length=1)
    tokens: _Tokens

    @property
    def prompt_tokens(self) -> int:
        """Estimated tokens of the prompt: four for three words."""
        return -(-4 * len(self.text.split()) // 3)


class PromptSet(_TaskModel):
    """Prompts of people.

    Attributes:
        spread: standard deviation of the logarithm of true over typical tokens of an answer.
        least_tokens, most_tokens: bounds of the tokens of an answer.
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
