"""Patience: how long a server waits for robots, and when it gives a request up."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice

from timely_llm.core.echo import quoted
from timely_llm.core.generation import Generation, PlanGeneration, State, StreamGeneration
from timely_llm.core.request import ErrorCode

Verdict = tuple[ErrorCode, str]

_WAITING = (State.BLOCKED, State.EXECUTING)
"""For its robot, not the robot for it."""


@dataclass(frozen=True)
class Patience:
    """Times after which a request is given up, so that none stays for ever.

    Attributes:
        client_timeout_s: silence of an agent that has been heard of, seconds. An agent that never
            said a word, such as a replayed bag, is not held to it.
        answer_timeout_s: from the predicted end of a segment to the report that is waited for, a
            blocking skill's value or the end of the plan, seconds.
        queue_timeout_s: from arrival to the first segment or token, and from when each next one is
            needed until it is there, seconds.
        drop_late: give a request up as soon as its time utility is spent before its first segment
            (what paper 001's released code does).
        max_replans: new plans made for a request whose segments fail.
    """

    client_timeout_s: float = 10.0
    answer_timeout_s: float = 60.0
    queue_timeout_s: float = 120.0
    drop_late: bool = False
    max_replans: int = 2


MOST_AGENTS = 4096
"""Agents that are remembered, beside those that have a request."""


class Watch:
    """Remembers when each agent was last heard of, and whose time is up.

    Anyone may say a word in any name: of agents that have no request only the `MOST_AGENTS` that
    were heard of last are remembered.

    Args:
        patience: the times.
    """

    def __init__(self, patience: Patience) -> None:
        self.patience = patience
        # The one that was silent longest comes first.
        self._heard_s: OrderedDict[str, float] = OrderedDict()

    @property
    def agents(self) -> int:
        """Agents that are remembered."""
        return len(self._heard_s)

    def heard(self, agent: str, now: float) -> None:
        """Take note that an agent said something."""
        self._heard_s[agent] = now
        self._heard_s.move_to_end(agent)

    def forget(self, now: float, served: Iterable[Generation] = ()) -> None:
        """Drop agents that were silent for longer than anyone is waited for, and those too many.

        Args:
            now: seconds on the loop's clock.
            served: the requests being served: their agents are not too many.
        """
        oldest_s = now - 2 * self.patience.client_timeout_s
        while self._heard_s and next(iter(self._heard_s.values())) < oldest_s:
            del self._heard_s[next(iter(self._heard_s))]
        too_many = len(self._heard_s) - MOST_AGENTS
        if too_many > 0:
            known = {generation.request.agent for generation in served}
            others = (agent for agent in list(self._heard_s) if agent not in known)
            for agent in islice(others, too_many):
                del self._heard_s[agent]

    def deadline_s(self, generation: Generation) -> float:
        """Return when the request is given up, unless something happens before."""
        return min(
            self._silence_s(generation), self._answer_s(generation), self._queue_s(generation)
        )

    def verdict(self, generation: Generation, now: float) -> Verdict | None:
        """Return why a request is given up now, or None."""
        patience, agent = self.patience, generation.request.agent
        if now >= self._silence_s(generation):
            limit_s = patience.client_timeout_s
            return (
                ErrorCode.CLIENT_SILENT,
                f"nothing was heard of {quoted(agent)} for {limit_s:g} s",
            )
        if isinstance(generation, PlanGeneration) and now >= self._answer_s(generation):
            last = generation.segments[-1]
            call = next((c.name for c in reversed(last.calls) if c.blocking), "")
            what = f"the value of {call}" if call else f"the end of segment {last.index}"
            return ErrorCode.NO_ANSWER, (
                f"{quoted(agent)} did not report {what} within {patience.answer_timeout_s:g} s of"
                " its predicted end"
            )
        if now >= self._queue_s(generation):
            waited_s = now - _waits_since_s(generation)
            return ErrorCode.EXPIRED, f"nothing could be made for it in {waited_s:.1f} s"
        return None

    def _silence_s(self, generation: Generation) -> float:
        limit_s = self.patience.client_timeout_s
        heard_s = self._heard_s.get(generation.request.agent, -math.inf)
        # Words of long before the request are of another life of the agent.
        if heard_s < generation.arrival_s - limit_s:
            return math.inf
        return max(heard_s, generation.arrival_s) + limit_s

    def _answer_s(self, generation: Generation) -> float:
        if generation.state not in _WAITING:
            return math.inf  # as always for streams
        return generation.due_s + self.patience.answer_timeout_s

    def _queue_s(self, generation: Generation) -> float:
        end_s = _waits_since_s(generation) + self.patience.queue_timeout_s
        late = generation.first and self.patience.drop_late
        return min(end_s, generation.zero_s) if late else end_s


def _waits_since_s(generation: Generation) -> float:
    """Return since when somebody waits for the next segment or token."""
    if generation.first:
        return generation.arrival_s
    if generation.state in _WAITING:
        return math.inf
    if isinstance(generation, StreamGeneration):
        return max(generation.last_s, generation.due_s)
    return generation.due_s
