"""Dispatchers by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from timely_llm.core.errors import ConfigurationError
from timely_llm.core.object_reference import is_reference, maker, raised
from timely_llm.core.options import read_options
from timely_llm.dispatch.assign.checked import CheckedRule
from timely_llm.dispatch.assign.counts import LeastOutstanding, RoundRobin, TwoChoices
from timely_llm.dispatch.assign.memory import LargestMemory
from timely_llm.dispatch.assign.response import ShortestResponse
from timely_llm.dispatch.assign.worth import MostWorth
from timely_llm.dispatch.contract import Dispatcher

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
    make: Any = maker("dispatcher", name, DISPATCHERS, "my_module:MyRule")
    known = (
        {one.name: one.default for one in fields(make) if one.init} if is_dataclass(make) else {}
    )
    options = read_options(name, known, parts)
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
    return made if name in DISPATCHERS else CheckedRule(made, name)
