"""Ranks: which of the requests in a full server yields its place to a new one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Sequence
from itertools import islice

from timely_llm.core.request import PlanRequest, Request
from timely_llm.core.time_utility import URGENT


class Ranks:
    """How much each request yields its place to others: the greater its rank, the more.

    Urgent plans of known agents yield least, then those of newcomers, other requests of known
    agents, urgent plans of other agents, and all else. Among alike, a request of an agent with more
    requests yields to one of an agent with fewer.

    *Newcomers.* A robot that has just started is not known yet. The oldest urgent plan of each
    unknown agent has a newcomer's place, as long as there is one. More names bring no more of these
    places, more requests bring an agent no second one, and no urgent plan of a known agent yields.

    Args:
        served: the requests that have a place, in order of arrival.
        known: the known agents.
        newcomers: newcomers' places.
    """

    def __init__(self, served: Sequence[Request], known: Container[str], newcomers: int) -> None:
        self._known = known
        self._requests = Counter(one.agent for one in served)
        self._places = newcomers
        oldest: dict[str, str] = {}  # urgent plan of each unknown agent
        for one in served:
            if is_urgent(one) and one.agent not in known:
                oldest.setdefault(one.agent, one.request_id)
        self._newcomers = dict(islice(oldest.items(), newcomers))

    def of(self, request: Request) -> tuple[int, int]:
        """Return the rank of a request that has a place."""
        newcomer = self._newcomers.get(request.agent) == request.request_id
        return self._kind(request, newcomer), self._requests[request.agent]

    def of_new(self, request: Request) -> tuple[int, int]:
        """Return the rank that a request would have with a place."""
        free = request.agent not in self._newcomers and len(self._newcomers) < self._places
        return self._kind(request, free), self._requests[request.agent] + 1

    def _kind(self, request: Request, newcomer: bool) -> int:
        urgent = is_urgent(request)
        if request.agent in self._known:
            return 0 if urgent else 2
        if urgent:
            return 1 if newcomer else 3
        return 4


def is_urgent(request: Request) -> bool:
    """Return whether a request is for a plan that is as urgent as `URGENT`."""
    return isinstance(request, PlanRequest) and request.time_utility.zero_s <= URGENT.zero_s
