"""Which of several plans is taken: the one that does most of its steps in a simulated world."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import NamedTuple, Protocol

import numpy as np

from timely_llm.core.errors import PlanError
from timely_llm.core.segment import SkillCall, Value
from timely_llm.progressive.grounding import phrases_of, words_of
from timely_llm.skills.checkers import SegmentReader
from timely_llm.skills.minispec.interpreter import Do, Interpreter
from timely_llm.skills.skill import Skill
from timely_llm.skills.skill_set import SkillSet
from timely_llm.skills.stop_checker import Call, If

MOST_CALLS = 256
"""A plan with more calls has not ended."""


class DryWorld(Protocol):
    """A simulated world around one robot."""

    def do(
        self, call: SkillCall, skill: Skill, rng: np.random.Generator, spread: float
    ) -> tuple[float, Value]:
        """Return how long a call takes, in seconds, and what it returns."""
        ...


MakeWorld = Callable[[Collection[str], Collection[str]], DryWorld]
"""Names of objects in view, and of objects that a search finds -> a new world.

`timely_llm.robots.world.World` is one.
"""


class DryRun(NamedTuple):
    """What a plan does; of two runs the larger one is better.

    Attributes:
        ended: whether the plan came to its end; one that is no plan has not.
        steps: steps of the sketch for which there is a call, in their order.
        beside: negative number of calls that belong to no step.
        early: negative seconds of all calls.
    """

    ended: int
    steps: int = 0
    beside: int = 0
    early: float = 0.0


def dry_run(plan: str, steps: Sequence[str], skill_set: SkillSet, world: DryWorld) -> DryRun:
    """Return what a plan does in a world; durations are the predicted ones.

    Args:
        plan: a whole plan.
        steps: of the sketch, in order.
        skill_set: what the robot can do.
        world: changed by the calls.
    """
    rng = np.random.default_rng(0)
    words = [set(words_of(step)) for step in steps]
    known: dict[tuple[object, ...], list[bool]] = {}  # which steps a call belongs to
    belongs: list[list[bool]] = []
    seconds = 0.0
    interpreter = Interpreter(skill_set)
    try:
        interpreter.complete(plan)
    except PlanError:
        return DryRun(0)
    while isinstance(action := interpreter.next(), Do) and len(belongs) < MOST_CALLS:
        call, skill = action.call, skill_set.skills.get(action.call.name)
        took_s, value = world.do(call, skill, rng, 0.0) if skill else (call.predicted_s, True)
        name = call.name, *call.arguments
        if name not in known:
            known[name] = _belongs(call, words, skill_set)
        belongs.append(known[name])
        seconds += took_s
        interpreter.resume(value)
    beside = sum(not any(row) for row in belongs)
    return DryRun(not isinstance(action, Do), _in_order(belongs, len(steps)), -beside, -seconds)


def best_plan(
    plans: Sequence[str], steps: Sequence[str], skill_set: SkillSet, make_world: MakeWorld
) -> int:
    """Return the place of the plan that does most, of equal ones the first.

    Each plan runs in three worlds: the objects that any plan names are in view, a search finds
    them, or they are not there. What the runs say is added up.

    Args:
        plans: at least one.
        steps: of the sketch, in order.
        skill_set: what the robot can do.
        make_world: makes a world.
    """
    names = sorted({name for plan in plans for name in _objects(plan, skill_set)})

    def worth(place: int) -> tuple[float, ...]:
        worlds = make_world(names, ()), make_world((), names), make_world((), ())
        runs = [dry_run(plans[place], steps, skill_set, world) for world in worlds]
        return tuple(map(sum, zip(*runs, strict=True)))

    return max(range(len(plans)), key=worth)


def _objects(plan: str, skill_set: SkillSet) -> Iterator[str]:
    """Yield the texts among the arguments of a plan's calls."""
    try:
        pieces = SegmentReader(skill_set).read(plan)
    except PlanError:
        return
    for op in (op for piece in pieces for op in piece.ops):
        calls = [op.call] if isinstance(op, Call) else []
        if isinstance(op, If):
            calls = [term.call for terms in op.alternatives for term in terms]
        for call in calls:
            yield from (one for one in call.arguments if isinstance(one, str))


def _belongs(call: SkillCall, steps: Sequence[set[str]], skill_set: SkillSet) -> list[bool]:
    """Return which steps, by their words, name the skill or an object of a call."""
    skill = skill_set.skills.get(call.name)
    objects = (set(words_of(one)) for one in call.arguments if isinstance(one, str))
    named = [*(phrases_of(skill) if skill else ()), *filter(None, objects)]
    return [any(phrase <= words for phrase in named) for words in steps]


def _in_order(belongs: Sequence[Sequence[bool]], steps: int) -> int:
    """Return the most steps that calls can be given to, each to one, in the order of both."""
    most = [0] * (steps + 1)  # by the number of first steps, for the calls so far
    for row in belongs:
        before = list(most)
        for step, fits in enumerate(row):
            most[step + 1] = max(before[step + 1], most[step], before[step] + fits)
    return most[steps]
