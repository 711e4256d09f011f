"""Which words of a step and a task name the same things and skills."""

from __future__ import annotations

import re
from collections.abc import Iterable

from timely_llm.skills.skill import Skill

_WORD = re.compile(r"[^\W_]+")
_LINKS = frozenset(
    ["a", "an", "the", "of", "it", "each", "one", "and", "then", "to", "on", "in", "at"]
)


def grounded(step: str, task: str, skills: Iterable[Skill] = (), least: float = 0.5) -> bool:
    """Return whether a task speaks of a step.

    At least a share of the step's words stands in the task. Or the task and the step name the same
    skill, each in words of its own, and all other words of the step stand in the task or are words
    such as "the". The edge plans no other step, whatever a cloud writes.

    Args:
        step: of a sketch.
        task: of the client.
        skills: of the robot. The words of a skill are its description, without the names of its
            arguments, and each entry of `also`.
        least: share of the words, from 0 to 1.
    """
    known, words = set(words_of(task)), words_of(step)
    if words and sum(word in known for word in words) >= least * len(words):
        return True
    named: set[str] = set()
    for skill in skills:
        phrases = phrases_of(skill)
        if any(phrase <= known for phrase in phrases):
            named.update(*(phrase for phrase in phrases if phrase <= set(words)))
    return bool(named) and set(words) <= named | known | _LINKS


def words_of(text: str) -> list[str]:
    """Return the words of a text, without case and marks."""
    return [word.casefold() for word in _WORD.findall(text)]


def phrases_of(skill: Skill) -> list[set[str]]:
    """Return the words of each way to name a skill."""
    left_out = _LINKS.union(*(words_of(one.name) for one in skill.arguments))
    phrases = (set(words_of(text)) - left_out for text in (skill.description, *skill.also))
    return [phrase for phrase in phrases if phrase]
