"""Policies by name."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import Field, fields, is_dataclass
from enum import StrEnum
from typing import Any

from timely_llm.core.errors import ConfigurationError
from timely_llm.core.object_reference import is_reference, load, raised
from timely_llm.core.text import quoted
from timely_llm.policies.annealing.policy import Annealing, ShortestJobFirst
from timely_llm.policies.contract import Policy
from timely_llm.policies.deadline.policy import Deadline
from timely_llm.policies.fcfs import Fcfs, Orca, Stream
from timely_llm.policies.least_served import FastServe, VirtualTokens
from timely_llm.policies.slice import Slice
from timely_llm.policies.strict_priority import StrictPriority
from timely_llm.policies.timely import Edf, FcfsSegments, Timely
from timely_llm.policies.timely_slice import TimelySlice

DEFAULT_POLICY = "deadline"
"""The policy of a server without a setting."""

_SWITCH = {"on": True, "off": False}
_MOST = 1e9

POLICIES: dict[str, type[Policy]] = {
    "fcfs": Fcfs,
    "stream": Stream,
    "fcfs-segments": FcfsSegments,
    "edf": Edf,
    "timely": Timely,
    "orca": Orca,
    "fastserve": FastServe,
    "prio": StrictPriority,
    "vtc": VirtualTokens,
    "slice": Slice,
    "timely+slice": TimelySlice,
    "sjf": ShortestJobFirst,
    "annealing": Annealing,
    "deadline": Deadline,
}


def make_policy(name: str, **options: float | str) -> Policy:
    """Return a new policy.

    Args:
        name: one of `POLICIES`, or a user's own, such as `my_module:MyPolicy`.
        options: the policy's own parameters; one with a `StrEnum` as default is one of its words.

    Raises:
        ConfigurationError: there is no policy of that name, the user's own is none, it has no such
            option, or an option is not one of its words.
    """
    make = policy_maker(name)
    known = _options(make)
    if is_dataclass(make) and (unknown := sorted(options.keys() - known.keys())):
        raise ConfigurationError(f"{name} has no option {unknown[0]}, only: {', '.join(known)}")
    for option, value in options.items():
        if isinstance(default := known.get(option), StrEnum):
            options[option] = word(f"{name}:{option}", default, value)
    if name in POLICIES:
        return _made(make, options)
    try:
        policy = _made(make, options)
    except Exception as error:  # whatever a user's class raises
        raise ConfigurationError(f"{name} cannot be made: {raised(error)}") from error
    lacking = [member for member in ("plan", "whole_plans") if not hasattr(policy, member)]
    if lacking:
        raise ConfigurationError(f"{name} is no policy: it has no {' and no '.join(lacking)}")
    return policy


def policy_maker(name: str) -> Callable[..., Policy]:
    """Return the maker of a policy: a class, or a user's own function.

    Raises:
        ConfigurationError: there is no policy of that name.
    """
    if name in POLICIES:
        return POLICIES[name]
    if not is_reference(name):
        raise ConfigurationError(
            f"unknown policy {name!r}: choose one of {', '.join(POLICIES)}, or name your own as"
            " my_module:MyPolicy"
        )
    make = load(name)
    if not callable(make):
        raise ConfigurationError(f"{name} is no policy: it is {quoted(make)}, not a class")
    maker: Callable[..., Policy] = make
    return maker


def options_of(name: str) -> dict[str, Any]:
    """Return the options of a policy, each with its default; none if it is no dataclass.

    The options of a part that is a dataclass count as the policy's own.

    Raises:
        ConfigurationError: there is no policy of that name.
    """
    return _options(policy_maker(name))


def parse_options(name: str, texts: Iterable[str]) -> dict[str, float | str]:
    """Return options of a policy by name, each from a text `option=value`; empty texts are skipped.

    Raises:
        ConfigurationError: there is no policy of that name, it has no such option, an option comes
            twice, or a value is not possible.
    """
    return read_options(name, options_of(name), texts)


def read_options(
    name: str, known: Mapping[str, object], texts: Iterable[str]
) -> dict[str, float | str]:
    """Return options by name, each from a text `option=value`; empty texts are skipped.

    Args:
        name: of what has the options, for the sentences of errors.
        known: all options, each with its default.
        texts: the texts.

    Raises:
        ConfigurationError: an option is unknown or comes twice, or a value is not possible.
    """
    values: dict[str, float | str] = {}
    for text in filter(None, texts):
        option, equals, value = text.partition("=")
        if not equals or option not in known:
            allowed = ", ".join(f"{one}={possible(default)}" for one, default in known.items())
            choice = f"choose of {allowed}" if known else "it has none"
            raise ConfigurationError(f"{quoted(text)} is no option of {name}: {choice}")
        if option in values:
            raise ConfigurationError(f"the option {option} of {name} is given twice")
        values[option] = option_value(f"{name}:{option}", known[option], value)
    return values


def possible(default: object) -> str:
    """Return what an option can be: its words, or dots for a number or a switch."""
    return "|".join(type(default)) if isinstance(default, StrEnum) else "..."


def option_value(what: str, default: object, text: str) -> float | str:
    """Return an option's value, of the type of its default.

    Args:
        what: name of the option, for the sentence of an error.
        default: the option's default.
        text: a user's text.

    Raises:
        ConfigurationError: the text is not such a value.
    """
    if isinstance(default, StrEnum):
        return word(what, default, text)
    if isinstance(default, bool):
        if text not in _SWITCH:
            raise ConfigurationError(f"{what} must be on or off, not {text!r}")
        return _SWITCH[text]
    if isinstance(default, float):
        try:
            number = float(text)
        except ValueError:
            number = math.nan
        if not (0.0 <= number <= _MOST or number == math.inf):
            raise ConfigurationError(f"{what} must be a number from 0 on or inf, not {text!r}")
        return number
    if not (text.isascii() and text.isdecimal() and 1 <= int(text[:11]) <= _MOST):
        raise ConfigurationError(f"{what} must be a whole number from 1 on, not {text!r}")
    return int(text)


def word(what: str, default: StrEnum, value: object) -> StrEnum:
    """Return the word that an option has as its value.

    Args:
        what: name of the option, for the sentence of an error.
        default: one of the option's words.
        value: a user's word.

    Raises:
        ConfigurationError: it is none of the option's words.
    """
    *most, last = allowed = [str(one) for one in type(default)]
    if value not in allowed:
        raise ConfigurationError(f"{what} must be {', '.join(most)} or {last}, not {quoted(value)}")
    return type(default)(value)


def _options(make: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for option in _init_fields(make):
        if is_dataclass(option.default_factory):
            found |= _options(option.default_factory)
        else:
            found[option.name] = option.default
    return found


def _init_fields(make: Any) -> list[Field[Any]]:
    """Return the fields that a policy or its part is made of; none if it is no dataclass."""
    return [one for one in fields(make) if one.init] if is_dataclass(make) else []


def _made(make: Any, options: Mapping[str, float | str]) -> Policy:
    """Return a policy with its parts, each with its own of the options."""
    own: dict[str, Any] = dict(options)
    for option in _init_fields(make):
        part = option.default_factory
        if is_dataclass(part):
            names = _options(part).keys() & own.keys()
            own[option.name] = _made(part, {name: own.pop(name) for name in names})
    policy: Policy = make(**own)
    return policy
