"""A robot's skills as callables: which fit a skill set, how they are called, what they return."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from timely_llm.core.arguments import Error
from timely_llm.core.errors import ConfigurationError, SkillFailed
from timely_llm.core.segment import SkillCall, Value
from timely_llm.core.text import count_of, listed
from timely_llm.skills.rules import Rule
from timely_llm.skills.skill import Skill
from timely_llm.skills.skill_set import SkillSet
from timely_llm.skills.stop_checker import Term

EXECUTION = "execution"
"""The keyword by which a callable asks for the `Execution` that it is part of."""
MAX_SHOWN = 40
MAX_BITS = 1024
"""Of a whole number, as of the largest float."""

_ALLOWED = {
    "boolean": "True or False",
    "number": "a number",
    "text": "a text",
    "nothing": "True, False, a number or a text",
}
_ORDERS = frozenset(("<", ">", "<=", ">="))


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
        otherwise: called with the `SkillCall` of every skill without a callable of its own, and of
            every statement without a skill; the only argument of the latter is its text.
        error: what is raised.

    Raises:
        error: a skill has no callable, or one that cannot be called as plans do.
    """

    def __init__(
        self,
        skill_set: SkillSet,
        skills: object,
        absent: Collection[str] = (),
        otherwise: Callable[..., object] | None = None,
        error: Error = ConfigurationError,
    ) -> None:
        self._skill_set = skill_set
        self._otherwise = (
            None if otherwise is None else _fitting("otherwise", otherwise, ["call"], error)
        )
        self._absent = frozenset([absent] if isinstance(absent, str) else absent)
        self._made: dict[str, _Made] = {}
        unknown = sorted(self._absent - skill_set.skills.keys())
        if unknown:
            raise error(
                f"skill set {skill_set.name!r} has no skill {listed(unknown)} that could be"
                f" absent: it has {', '.join(skill_set.skills)}"
            )
        missing = []
        for name, skill in skill_set.skills.items():
            found = skills.get(name) if isinstance(skills, Mapping) else getattr(skills, name, None)
            if name in self._absent:
                continue
            if found is not None:
                what = f"the callable of {name}"
                arguments = [argument.name for argument in skill.arguments]
                self._made[name] = _fitting(what, found, arguments, error)
            elif otherwise is None:
                missing.append(name)
        if missing:
            given = ""
            if isinstance(skills, Mapping):
                given = f" (given: {listed([str(name) for name in skills])})"
            raise error(
                f"skills of {skill_set.name!r} have no callable: {', '.join(missing)}{given}"
            )
        if otherwise is None and _has_plain_statements(skill_set):
            raise error(
                f"texts of {skill_set.name!r} have statements without a skill: pass otherwise=,"
                " which is called with each"
            )

    def make(self, call: SkillCall, term: Term | None, execution: object) -> Value | None:
        """Make a call of a plan; return the value with which the plan goes on, if it uses one.

        Args:
            call: a call with checked arguments.
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


def _fitting(what: str, found: Any, arguments: list[str], error: Error) -> _Made:
    """Return a callable that takes these arguments.

    Raises:
        error: it does not, or calling it would do nothing.
    """
    if not callable(found):
        raise error(f"{what} must be callable, not {type(found).__name__}")
    for function in (found, found.__call__):
        if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
            raise error(f"{what} is a coroutine: plain functions are executed")
        if inspect.isgeneratorfunction(function):
            raise error(f"{what} is a generator: plain functions are executed")
    try:
        signature = inspect.signature(found)
    except (TypeError, ValueError):  # it does not say, as some that are written in C
        return _Made(found, False)
    asked = signature.parameters.get(EXECUTION)
    asks = asked is not None and asked.kind is inspect.Parameter.KEYWORD_ONLY
    try:
        signature.bind(*arguments, **({EXECUTION: None} if asks else {}))
    except TypeError:
        named = f" ({', '.join(arguments)})" if arguments else ""
        count = f"{count_of(len(arguments), 'argument')} by position{named}"
        raise error(f"{what} must take {count}, not {signature}") from None
    return _Made(found, asks)


def _has_plain_statements(skill_set: SkillSet) -> bool:
    if skill_set.language == "regex":
        rules = [Rule(number, rule) for number, rule in enumerate(skill_set.rules, start=1)]
        return not all(rule.calls_skills for rule in rules)
    return skill_set.language != "minispec"


Returns = Literal["nothing", "boolean", "number", "text"]


def used_value(call: SkillCall, returns: Returns, term: Term | None, value: object) -> Value | None:
    """Return the value of a call for its plan; None: the plan does not use it.

    The value of a statement that does not block is not used. The value of a blocking call, or of a
    term of a condition, must be of the kind that the skill set declares; a skill that is declared
    to return nothing may return any kind in a condition. `<`, `>`, `<=` and
    `>=` compare a number with a number or a text with a text. A numpy scalar
    counts as the value that it holds.

    Args:
        call: which call.
        returns: what its skill returns, as the skill set says.
        term: the term of a condition that it stands in; None: it is a statement.
        value: what its callable returned.

    Raises:
        SkillFailed: the plan cannot go on with the value.
    """
    if inspect.isawaitable(value) or inspect.isgenerator(value):
        if inspect.iscoroutine(value):
            value.close()
        raise SkillFailed(f"{call.name} returned a {_kind_name(value)}, so nothing was done")
    if term is None and not call.blocking:
        return None
    plain = _plain(value)
    kind = None if plain is None else kind_of(plain)
    if isinstance(plain, str) and any("\ud800" <= char <= "\udfff" for char in plain):
        raise SkillFailed(f"{call.name} returned a text that is no Unicode")
    if plain is None or (returns != "nothing" and kind != returns):
        raise SkillFailed(f"{call.name} must return {_ALLOWED[returns]}, not {_shown(value)}")
    if term is not None and term.comparison in _ORDERS:
        wanted = kind_of(term.literal)
        if kind != wanted or kind == "boolean":
            raise SkillFailed(
                f"{call.name} returned {_shown(plain)}, which is not comparable"
                f" by {term.comparison} with {_shown(term.literal)}"
            )
    return plain


def kind_of(value: Value) -> Returns:
    """Return the kind of a value, in the words of skill sets."""
    if isinstance(value, bool):
        return "boolean"
    return "text" if isinstance(value, str) else "number"


def _plain(value: object) -> Value | None:
    """Return a value as Python's own kind; None: it is none that plans know."""
    if getattr(value, "shape", None) == () and hasattr(value, "item"):
        value = value.item()
    if isinstance(value, bool):
        return value
    if isinstance(value, int):
        return int(value) if value.bit_length() <= MAX_BITS else None
    if isinstance(value, float):
        return None if math.isnan(value) else float(value)
    return str.__str__(value) if isinstance(value, str) else None


def _shown(value: object) -> str:
    plain = _plain(value)
    if plain is None:
        if isinstance(value, float):
            return "NaN"
        return "None" if value is None else f"a value of type {_kind_name(value)}"
    words = repr(plain)
    return words if len(words) <= MAX_SHOWN else words[: MAX_SHOWN - 3] + "..."


def _kind_name(value: object) -> str:
    return type(value).__name__
