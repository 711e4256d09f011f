"""Calls of skills: their arguments, read from text and checked before anything reaches a robot."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

import regex

from timely_llm.core import echo
from timely_llm.core.errors import PlanError
from timely_llm.core.segment import SkillCall
from timely_llm.skills.execution_time import ExecutionTimes
from timely_llm.skills.skill_set import Skill

# One argument and what ends it; possessive, so that no text takes long.
_QUOTED = r"\s*+(?:'(?P<one>(?:[^'\\]|\\.)*+)'|\"(?P<two>(?:[^\"\\]|\\.)*+)\")\s*+"
_ARGUMENT = regex.compile(rf"(?:{_QUOTED}|(?P<bare>[^,'\"]*+))(?P<end>,|\Z)", regex.DOTALL)
_ESCAPE = regex.compile(r"\\(.)", regex.DOTALL)
_NUMBER = regex.compile(r"[-+]?[0-9]{1,16}(?P<broken>\.[0-9]{0,16})?")


def checked_call(
    name: str, skill: Skill, arguments: Sequence[int | float | str], times: ExecutionTimes
) -> SkillCall:
    """Return a call with its predicted seconds.

    Raises:
        PlanError: its arguments are not allowed.
    """
    if len(arguments) != len(skill.arguments):
        raise PlanError(f"{name} takes {len(skill.arguments)} arguments, not {len(arguments)}")
    for argument, value in zip(skill.arguments, arguments, strict=True):
        if problem := argument.problem(value):
            raise PlanError(f"{name}: {problem}")
    given = tuple(arguments)
    return SkillCall(name, given, times.predict_s(name, given), skill.blocking)


def parse_arguments(text: str, skill: Skill) -> list[int | float | str]:
    """Return the arguments written in `text`, between the brackets of a call.

    They are separated by commas: numbers, quoted texts with a backslash before a quote inside, or
    bare words, which are texts. What a skill takes as a text is one, also if it
    looks like a number.

    Raises:
        PlanError: a quote is open or stands in a bare word, or there are control characters.
    """
    if any(unicodedata.category(char) == "Cc" and char not in "\t\n\r" for char in text):
        raise PlanError("arguments must not contain control characters")
    found: list[int | float | str] = []
    place = 0
    while text.strip():
        match = _ARGUMENT.match(text, place)
        if match is None:
            given = echo.quoted(text)
            raise PlanError(f"arguments must be numbers, texts in quotes or words, not {given}")
        quoted = match["one"] if match["one"] is not None else match["two"]
        if quoted is not None:
            found.append(_ESCAPE.sub(r"\1", quoted))
        else:
            wanted = skill.arguments[len(found)].type if len(found) < len(skill.arguments) else ""
            found.append(_bare(match["bare"].strip(), wanted))
        place = match.end()
        if match["end"] != ",":
            break
    return found


def _bare(word: str, wanted: str) -> int | float | str:
    """Return what an argument without quotes means."""
    number = _NUMBER.fullmatch(word)
    if number is None or wanted == "text":
        return word
    return int(word) if number["broken"] is None else float(word)
