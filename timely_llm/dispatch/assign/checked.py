"""A user's own rule: what it does wrong costs no request."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from timely_llm.core.object_reference import raised
from timely_llm.core.text import quoted
from timely_llm.dispatch.assign.worth import MostWorth
from timely_llm.dispatch.contract import Assignment, Dispatcher, ServerView, Waiting

log = logging.getLogger(__name__)


class CheckedRule:
    """Asks a rule, and the default rule where that one fails.

    Assignments of unknown requests, or to servers that were not offered, do not count. The first
    fault is logged.

    Args:
        rule: a user's own.
        name: of the rule, for the log.
    """

    def __init__(self, rule: Dispatcher, name: str) -> None:
        self._rule = rule
        self._name = name
        self._default = MostWorth()
        self._said = False
        self.gathers = bool(rule.gathers)

    def assign(
        self, now: float, waiting: Sequence[Waiting], servers: Sequence[ServerView]
    ) -> Sequence[Assignment]:
        """Return the rule's assignments that are possible; if it raises, those of the default."""
        try:
            made = [Assignment(*one) for one in self._rule.assign(now, waiting, servers)]
        except Exception as error:  # whatever a user's code raises
            self._say(f"failed: {raised(error)}; requests are assigned by the default rule")
            return self._default.assign(now, waiting, servers)
        names = {one.name for one in servers}
        left = {one.key for one in waiting}
        fine = []
        for one in made:
            if one.request_id in left and one.server in names:
                left.remove(one.request_id)
                fine.append(one)
            else:
                self._say(f"assigned {quoted(one)}, which is no request and server that it got")
        return fine

    def _say(self, words: str) -> None:
        if not self._said:
            log.warning("the dispatcher's rule %s %s", self._name, words)
        self._said = True
