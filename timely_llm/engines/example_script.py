"""What the engine without a model answers: the plans in the served skill sets' own examples."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from timely_llm.core.errors import PlanError
from timely_llm.skills.checkers import cut
from timely_llm.skills.skill_set import Argument, Example, SkillSet
from timely_llm.skills.stop_checker import Piece

ASSISTANT = "<assistant>\n"
"""The script tokenizer's line before an answer."""
NO_MODEL = "This is the simulated engine. It has no language model."
"""What every conversation is answered."""
_WORD = re.compile(r"\w+")


class ExampleScript:
    """Answers a task with the plan of the example whose task has the most words in common with it.

    Examples that are equally near answer in turn. A skill set without examples is answered with
    one call of each skill. A prompt of no known skill set is a conversation: the answer is prose.

    A plan with a blocking skill is answered in parts: the words after the call follow when the
    engine has got its value.

    Args:
        skill_sets: returns the skill sets being served.
    """

    def __init__(self, skill_sets: Callable[[], Iterable[SkillSet]]) -> None:
        self._skill_sets = skill_sets
        self._turns: Counter[str] = Counter()

    def __call__(self, key: str, prompt: str) -> str:
        """Return what is said next; `key` names the sequence."""
        asked, _, said = prompt.rpartition(ASSISTANT)
        skill_set = next((s for s in self._skill_sets() if s.prompt_text() in asked), None)
        if skill_set is None or skill_set.language not in ("minispec", "regex"):
            return "" if said else NO_MODEL
        if said:
            return _rest(skill_set, parts_of(skill_set, said)[:-1])
        task = asked.partition(skill_set.prompt_text())[2]
        near = nearest(plans_of(skill_set), task)
        turn = self._turns[skill_set.name]
        self._turns[skill_set.name] += 1
        return parts_of(skill_set, near[turn % len(near)].plan)[0]


def _rest(skill_set: SkillSet, said: list[str]) -> str:
    """Return what follows the parts that were said, in the first plan that begins with them."""
    for example in plans_of(skill_set):
        parts = parts_of(skill_set, example.plan)
        if len(parts) > len(said) and parts[: len(said)] == said:
            return parts[len(said)]
    return ""


def plans_of(skill_set: SkillSet) -> Sequence[Example]:
    """Return the examples of a skill set, or one that calls each skill if it has none."""
    return skill_set.examples or (Example(task="", plan=every_skill(skill_set)),)


def nearest(examples: Sequence[Example], task: str) -> list[Example]:
    """Return the examples whose tasks have the largest share of words in common with `task`."""
    words = _words(task)
    shares = [
        len(words & _words(example.task)) / max(len(words | _words(example.task)), 1)
        for example in examples
    ]
    most = max(shares)
    return [example for example, share in zip(examples, shares, strict=True) if share == most]


def parts_of(skill_set: SkillSet, plan: str) -> list[str]:
    """Return a plan's text, parted after each blocking call, without the values in it."""
    try:
        pieces = cut(skill_set, plan)
    except PlanError:
        return [plan]  # the server says what is wrong with it
    parts, read = [""], 0
    for piece in pieces:
        read += len(piece.text if isinstance(piece, Piece) else piece)
        if isinstance(piece, Piece):
            parts[-1] += piece.text
            if piece.blocking:
                parts.append("")
    return [*parts[:-1], parts[-1] + plan[read:]]


def every_skill(skill_set: SkillSet) -> str:
    """Return a plan that calls each skill once, with the smallest arguments allowed."""
    calls = (
        f"{name}({','.join(map(_smallest, skill.arguments))});"
        for name, skill in skill_set.skills.items()
    )
    return "".join(calls) + "->True;"


def _smallest(argument: Argument) -> str:
    if argument.type == "text":
        return f"'{argument.name[: argument.maximum_length]}'"
    bounds = [bound for bound in (argument.minimum, argument.maximum) if bound is not None]
    smallest = min(bounds, default=1.0)
    return str(math.ceil(smallest)) if argument.type == "integer" else f"{smallest:g}"


def _words(text: str) -> frozenset[str]:
    return frozenset(_WORD.findall(text.lower()))
