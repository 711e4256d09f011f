"""Policies by name."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import Field, fields, is_dataclass
from enum import StrEnum
from typing import Any

from timely_llm.core.errors import ConfigurationError
from timely_llm.core.object_reference import maker, raised
from timely_llm.core.options import read_options, word
from timely_llm.policies.annealing.policy import Annealing, ShortestJobFirst
from timely_llm.policies.contract import Policy
from timely_llm.policies.deadline.policy import Deadline
from timely_llm.policies.fcfs import Fcfs, Orca, Stream, StrictPriority
from timely_llm.policies.least_served import FastServe, VirtualTokens
from timely_llm.policies.slice import Slice
from timely_llm.policies.timely import Edf, FcfsSegments, Timely, TimelyLlm
from timely_llm.policies.timely_slice import TimelySlice

DEFAULT_POLICY = "deadline"
"""The policy of a server without a setting."""

POLICIES: dict[str, type[Policy]] = {
    "fcfs": Fcfs,
    "stream": Stream,
    "fcfs-segments": FcfsSegments,
    "edf": Edf,
    "timely": Timely,
    "timelyllm": TimelyLlm,
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
    made: Callable[..., Policy] = maker("policy", name, POLICIES, "my_module:MyPolicy")
    return made


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
