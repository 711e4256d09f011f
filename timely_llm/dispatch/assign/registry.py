"""Dispatchers by name, and the check of a user's own."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

from timely_llm.core.errors import ConfigurationError
from timely_llm.core.object_reference import is_reference, maker, raised
from timely_llm.core.options import read_options
from timely_llm.core.text import quoted
from timely_llm.dispatch.assign.rules import (
    LargestMemory,
    LeastOutstanding,
    MostWorth,
    RoundRobin,
    ShortestResponse,
    TwoChoices,
)
from timely_llm.dispatch.contract import Assignment, Dispatcher, ServerView, Waiting

log = logging.getLogger(__name__)

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


def make_dispatcher(spec: str, say: Callable[[str], object] = log.warning) -> Dispatcher:
    """Return a new dispatcher.

    Args:
        spec: one of `DISPATCHERS`, or a user's own as `my_module:MyRule`; each may be followed by
            options, as in `two-choices:seed=3`.
        say: takes a sentence about a fault of a user's own rule.

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
    return made if name in DISPATCHERS else CheckedRule(made, name, say)


class CheckedRule:
    """Asks a rule, and the default rule where that one fails.

    Assignments of unknown requests, or to servers that were not offered, do not count. Requests
    that the rule leaves out are assigned by the default rule. The first fault is logged.

    Args:
        rule: a user's own.
        name: of the rule, for the log.
        say: takes a sentence for the log.
    """

    def __init__(self, rule: Dispatcher, name: str, say: Callable[[str], object]) -> None:
        self._rule = rule
        self._name = name
        self._log = say
        self._default = MostWorth()
        self._said = False
        self.gathers = bool(rule.gathers)

    def assign(
        self, now: float, waiting: Sequence[Waiting], servers: Sequence[ServerView]
    ) -> Sequence[Assignment]:
        """Return the rule's assignments that are possible, and those of the default for others."""
        try:
            made = [Assignment(*one) for one in self._rule.assign(now, waiting, servers)]
        except Exception as error:  # whatever a user's code raises
            self._say(f"failed: {raised(error)}")
            return self._default.assign(now, waiting, servers)
        names = {one.name for one in servers}
        left = {one.key: one for one in waiting}
        fine = []
        for one in made:
            if one.request_id in left and one.server in names:
                del left[one.request_id]
                fine.append(one)
            else:
                self._say(
                    f"assigned {quoted(one)}, which is not a request and a server that it got"
                )
        others = self._default.assign(now, list(left.values()), servers) if left else ()
        if others:
            self._say(f"assigned no server to {quoted(others[0].request_id)}")
        return [*fine, *others]

    def _say(self, words: str) -> None:
        if not self._said:
            self._log(
                f"the dispatcher's rule {self._name} {words}; what it does not assign, the default"
                " rule assigns"
            )
        self._said = True
