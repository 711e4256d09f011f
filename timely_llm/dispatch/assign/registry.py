"""Dispatchers by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import Field, fields, is_dataclass
from enum import StrEnum
from typing import Any

from timely_llm.core.errors import ConfigurationError
from timely_llm.core.object_reference import is_reference, load, raised
from timely_llm.core.text import quoted
from timely_llm.dispatch.assign.counts import LeastOutstanding, RoundRobin, TwoChoices
from timely_llm.dispatch.assign.memory import LargestMemory
from timely_llm.dispatch.assign.response import ShortestResponse
from timely_llm.dispatch.assign.worth import MostWorth
from timely_llm.dispatch.contract import Dispatcher
from timely_llm.policies.registry import word

DEFAULT_DISPATCHER = "most-worth"
"""The rule of a dispatcher without a setting."""

DISPATCHERS: Mapping[str, type[Dispatcher]] = {
    "round-robin": RoundRobin,
    "least-outstanding": LeastOutstanding,
    "two-choices": TwoChoices,
    "largest-memory": LargestMemory,
    "shortest-response": ShortestResponse,
    "most-worth": MostWorth,
}


def make_dispatcher(spec: str) -> Dispatcher:
    """Return a new dispatcher.

    Args:
        spec: one of `DISPATCHERS`, or a user's own as `my_module:MyRule`; each may be followed by
            options, as in `two-choices:seed=3`.

    Raises:
        ConfigurationError: no rule has the name, the user's own is none, or an option is unknown or
            has an impossible value.
    """
    name, *parts = spec.split(":")
    if name not in DISPATCHERS and parts and is_reference(f"{name}:{parts[0]}"):
        name = f"{name}:{parts.pop(0)}"
    make: Any = _maker(name)
    known = {one.name: one for one in fields(make) if one.init} if is_dataclass(make) else {}
    options = dict(_option(name, part, known) for part in parts)
    try:
        rule = make(**options)
    except ConfigurationError:
        raise
    except Exception as error:  # whatever a user's class raises
        raise ConfigurationError(f"{name} cannot be made: {raised(error)}") from error
    lacking = [member for member in ("assign", "gathers") if not hasattr(rule, member)]
    if lacking:
        raise ConfigurationError(f"{name} is no dispatcher: it has no {' and no '.join(lacking)}")
    made: Dispatcher = rule
    return made


def _maker(name: str) -> object:
    if name in DISPATCHERS:
        return DISPATCHERS[name]
    if not is_reference(name):
        raise ConfigurationError(
            f"unknown dispatcher {quoted(name)}: choose one of {', '.join(DISPATCHERS)}, or name"
            " your own as my_module:MyRule"
        )
    make = load(name)
    if not callable(make):
        raise ConfigurationError(f"{name} is no dispatcher: it is {quoted(make)}, not a class")
    return make


def _option(name: str, part: str, known: Mapping[str, Field[Any]]) -> tuple[str, object]:
    """Return an option and its value.

    Raises:
        ConfigurationError: the rule has no such option, or the value is not possible.
    """
    option, given, value = part.partition("=")
    if not given or option not in known:
        allowed = ", ".join(f"{one}=..." for one in known) or "none"
        raise ConfigurationError(f"{name} has no option {quoted(part)}, only: {allowed}")
    default = known[option].default
    if isinstance(default, StrEnum):
        return option, word(f"{name}:{option}", default, value)
    try:
        return option, int(value) if isinstance(default, int) else float(value)
    except ValueError as error:
        raise ConfigurationError(
            f"{name}:{option} must be a number, not {quoted(value)}"
        ) from error
