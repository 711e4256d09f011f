"""A robot's skills as callables: whether they fit a skill set, and how a call of a plan is made."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from timely_llm.core.errors import ConfigurationError, SkillFailed
from timely_llm.core.segment import SkillCall, Value
from timely_llm.skills.returned import used_value
from timely_llm.skills.rules import Rule
from timely_llm.skills.skill_set import Skill, SkillSet
from timely_llm.skills.stop_checker import Term

EXECUTION = "execution"
"""The keyword by which a callable asks for the `Execution` that it is part of."""


@dataclass(frozen=True)
class _Made:
    """A callable that fits, and whether it asks for its execution."""

    function: Callable[..., object]
    asks: bool

    def __call__(self, arguments: tuple[object, ...], execution: object) -> object:
        if self.asks:
            return self.function(*arguments, **{EXECUTION: execution})
        return self.function(*arguments)


class Callables:
    """What is called for each skill of a skill set.

    Args:
        skill_set: the skills that plans may use.
        skills: a mapping of skills' names to callables, or an object with methods of these names.
        absent: skills that this robot does not have: a plan that uses one fails there, and is made
            anew.
        otherwise: called with the `SkillCall` of every skill that has no callable of its own, and
            of every statement without a skill, whose only argument is its text.

    Raises:
        ConfigurationError: a skill has no callable, or one that cannot be called as plans do.
    """

    def __init__(
        self,
        skill_set: SkillSet,
        skills: object,
        absent: Collection[str] = (),
        otherwise: Callable[..., object] | None = None,
    ) -> None:
        self._skill_set = skill_set
        self._otherwise = None if otherwise is None else _fitting("otherwise", otherwise, 1)
        self._absent = frozenset([absent] if isinstance(absent, str) else absent)
        self._made: dict[str, _Made] = {}
        unknown = sorted(self._absent - skill_set.skills.keys())
        if unknown:
            raise ConfigurationError(
                f"skill set {skill_set.name!r} has no skill {', '.join(unknown)} that could be"
                f" absent: it has {', '.join(skill_set.skills)}"
            )
        missing = []
        for name, skill in skill_set.skills.items():
            found = skills.get(name) if isinstance(skills, Mapping) else getattr(skills, name, None)
            if name in self._absent:
                continue
            if found is not None:
                what = f"the callable of {name}"
                self._made[name] = _fitting(what, found, len(skill.arguments))
            elif otherwise is None:
                missing.append(name)
        if missing:
            given = ""
            if isinstance(skills, Mapping):
                given = f" (given: {', '.join(map(str, skills)) or 'none'})"
            raise ConfigurationError(
                f"skills of {skill_set.name!r} have no callable: {', '.join(missing)}{given}"
            )
        if otherwise is None and _has_plain_statements(skill_set):
            raise ConfigurationError(
                f"texts of {skill_set.name!r} have statements without a skill: pass otherwise=,"
                " which is called with each"
            )

    def make(self, call: SkillCall, term: Term | None, execution: object) -> Value | None:
        """Make a call of a plan; return the value with which the plan goes on, if it uses one.

        Args:
            call: of a plan whose arguments were checked.
            term: the term of a condition that it stands in, if it does.
            execution: handed to callables that ask for it.

        Raises:
            SkillFailed: the skill is absent, or the plan cannot go on with what it returned.
            Exception: whatever the callable raises.
        """
        if call.name in self._absent:
            raise SkillFailed(f"this robot has no skill {call.name}")
        skill = self._skill_set.skills.get(call.name)
        made = self._made.get(call.name)
        if made is not None and skill is not None:
            value = made(_arguments(skill, call), execution)
        elif self._otherwise is not None:
            value = self._otherwise((call,), execution)
        else:
            raise SkillFailed(f"this robot has no skill {call.name}")
        return used_value(call, "nothing" if skill is None else skill.returns, term, value)


def _arguments(skill: Skill, call: SkillCall) -> tuple[int | float | str, ...]:
    """Return the arguments, each of the type that the skill set declares."""
    return tuple(
        float(value) if argument.type == "number" and isinstance(value, int) else value
        for argument, value in zip(skill.arguments, call.arguments, strict=True)
    )


def _fitting(what: str, found: Any, arguments: int) -> _Made:
    """Return a callable that takes so many arguments.

    Raises:
        ConfigurationError: it does not, or calling it would do nothing.
    """
    if not callable(found):
        raise ConfigurationError(f"{what} must be callable, not {type(found).__name__}")
    for function in (found, found.__call__):
        if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
            raise ConfigurationError(f"{what} is a coroutine: plain functions are executed")
        if inspect.isgeneratorfunction(function):
            raise ConfigurationError(f"{what} is a generator: plain functions are executed")
    try:
        signature = inspect.signature(found)
    except (TypeError, ValueError):  # it does not say, as some that are written in C
        return _Made(found, False)
    asked = signature.parameters.get(EXECUTION)
    asks = asked is not None and asked.kind is inspect.Parameter.KEYWORD_ONLY
    try:
        signature.bind(*range(arguments), **({EXECUTION: None} if asks else {}))
    except TypeError:
        count = f"{arguments} argument{'' if arguments == 1 else 's'}"
        raise ConfigurationError(f"{what} must take {count} by position, not {signature}") from None
    return _Made(found, asks)


def _has_plain_statements(skill_set: SkillSet) -> bool:
    if skill_set.language == "regex":
        rules = [Rule(number, rule) for number, rule in enumerate(skill_set.rules, start=1)]
        return not all(rule.calls_skills for rule in rules)
    return skill_set.language != "minispec"
