"""Answers of the simulated engine: plans of the examples in the served skill sets."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence

from timely_llm.core.errors import PlanError
from timely_llm.skills.checkers import cut_beginning
from timely_llm.skills.choices import literal
from timely_llm.skills.skill import Argument
from timely_llm.skills.skill_set import Example, SkillSet
from timely_llm.skills.stop_checker import Piece

ASSISTANT = "<assistant>\n"
"""Line of the script tokenizer before an answer."""
NO_MODEL = "This is the simulated engine. It has no language model."
"""The answer in every conversation."""
_WORD = re.compile(r"\w+")


class ExampleScript:
    """Answers a task with the plan of the nearest example: most words in common with its task.

    Equally near examples answer in turn. A skill set without examples is answered with one call of
    each skill. A prompt of no known skill set is a conversation, answered by `NO_MODEL`.

    A plan with a blocking skill is answered in parts: the part after the call follows the returned
    value. If several plans have the same beginning, the plan of the nearest task continues; among
    equally near plans, the one with values that have most words in common with the robot's.

    Args:
        skill_sets: returns the served skill sets.
    """

    def __init__(self, skill_sets: Callable[[], Iterable[SkillSet]]) -> None:
        self._skill_sets = skill_sets
        self._asked = 0
        self._answered: dict[tuple[str, str, str], int] = {}  # turn of each example's last answer

    def __call__(self, key: str, prompt: str) -> str:
        """Return the next part of the answer of the sequence `key`."""
        asked, _, said = prompt.rpartition(ASSISTANT)
        # The text of one skill set can be the beginning of another one's.
        served = [s for s in self._skill_sets() if s.prompt_text() in asked]
        skill_set = max(served, key=lambda s: len(s.prompt_text()), default=None)
        if skill_set is None or skill_set.language not in ("minispec", "regex"):
            return "" if said else NO_MODEL
        task = asked.partition(skill_set.prompt_text())[2]
        if said:
            return _rest(skill_set, task, said)
        return parts_of(skill_set, self._next(skill_set, task).plan)[0]

    def _next(self, skill_set: SkillSet, task: str) -> Example:
        """Return the nearest example; among equally near ones the one that answered longest ago."""

        def place(example: Example) -> tuple[str, str, str]:
            return skill_set.name, example.task, example.plan

        near = nearest(plans_of(skill_set), task)
        chosen = min(near, key=lambda example: self._answered.get(place(example), 0))
        self._asked += 1
        self._answered[place(chosen)] = self._asked
        return chosen


def _rest(skill_set: SkillSet, task: str, text: str) -> str:
    """Return what follows `text` in the best matching example."""
    *said, begun = parts_of(skill_set, text)
    values = " ".join(values_of(skill_set, text))
    going_on = []
    for example in plans_of(skill_set):
        parts = parts_of(skill_set, example.plan)
        part = parts[len(said)] if len(parts) > len(said) else ""
        if len(parts) > len(said) and parts[: len(said)] == said and part.startswith(begun):
            got = " ".join(values_of(skill_set, example.plan)[: len(said)])
            rest = part[len(begun) :]
            going_on.append((_share(example.task, task), _share(got, values), rest))
    return max(going_on, key=lambda found: found[:2], default=(0.0, 0.0, ""))[2]


def plans_of(skill_set: SkillSet) -> Sequence[Example]:
    """Return the examples of a skill set, or one that calls each skill if it has none."""
    return skill_set.examples or (Example(task="", plan=every_skill(skill_set)),)


def nearest(examples: Sequence[Example], task: str) -> list[Example]:
    """Return the examples with the largest share of words in common with `task`."""
    shares = [_share(example.task, task) for example in examples]
    most = max(shares)
    return [example for example, share in zip(examples, shares, strict=True) if share == most]


def parts_of(skill_set: SkillSet, plan: str) -> list[str]:
    """Return the text of a plan, cut after blocking calls, without the returned values."""
    try:
        pieces = cut_beginning(skill_set, plan)
    except PlanError:
        return [plan]  # the server reports what is wrong with it
    parts, read = [""], 0
    for piece in pieces:
        read += len(piece.text if isinstance(piece, Piece) else piece)
        if isinstance(piece, Piece):
            parts[-1] += piece.text
            if piece.blocking:
                parts.append("")
    return [*parts[:-1], parts[-1] + plan[read:]]


def values_of(skill_set: SkillSet, plan: str) -> list[str]:
    """Return the returned values in a plan's text, as tool output."""
    try:
        return [piece for piece in cut_beginning(skill_set, plan) if not isinstance(piece, Piece)]
    except PlanError:
        return []


def every_skill(skill_set: SkillSet) -> str:
    """Return a plan that calls each skill once, with the smallest or first values allowed."""
    calls = (
        f"{name}({','.join(map(_smallest, skill.arguments))});"
        for name, skill in skill_set.skills.items()
    )
    return "".join(calls) + "->True;"


def _smallest(argument: Argument) -> str:
    if argument.choices:
        return literal(argument.choices[0])
    if argument.type == "text":
        return f"'{argument.name[: argument.maximum_length]}'"
    bounds = [bound for bound in (argument.minimum, argument.maximum) if bound is not None]
    smallest = min(bounds, default=1.0)
    return str(math.ceil(smallest)) if argument.type == "integer" else f"{smallest:g}"


def _share(text: str, other: str) -> float:
    """Return the share of words that two texts have in common, 0 to 1."""
    words, others = _words(text), _words(other)
    return len(words & others) / max(len(words | others), 1)


def _words(text: str) -> frozenset[str]:
    return frozenset(_WORD.findall(text.lower()))
