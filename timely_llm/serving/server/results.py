"""What a client can ask for again: results of ended requests, segments of plans in service."""

from __future__ import annotations

import sys
import threading
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

from timely_llm.core.errors import RequestError
from timely_llm.core.generation import Generation, PlanGeneration, by_kind
from timely_llm.core.request import PlanRequest, Request, Result
from timely_llm.core.segment import Segment
from timely_llm.core.text import quoted

T = TypeVar("T")
MOST_BYTES = 64 * 2**20
"""Memory of all results that are kept: as many as `max_results` of usual size fit into less."""


@dataclass(frozen=True, slots=True)
class _StoredResult(Generic[T]):
    value: T
    size: int
    end_s: float


class Results(Generic[T]):
    """Keeps values by key for a time, as many as fit; may be used from any thread.

    The oldest go first when there are too many, or when they take too much memory. A newer value
    of a key replaces the older one.

    Args:
        keep_s: how long each is kept, seconds; 0: not at all.
        most: most that are kept.
        most_bytes: most memory of all that are kept.
    """

    def __init__(self, keep_s: float, most: int, most_bytes: int = MOST_BYTES) -> None:
        self._keep_s = keep_s
        self._most = most
        self._most_bytes = most_bytes
        self._lock = threading.Lock()
        self._kept: OrderedDict[str, _StoredResult[T]] = OrderedDict()  # the oldest first
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._kept)

    @property
    def bytes(self) -> int:
        """Memory of the kept values, as given to `put`."""
        return self._bytes

    def put(self, key: str, value: T, size: int, now: float) -> None:
        """Keep a value.

        Args:
            key: asked for by `get`.
            value: what is kept.
            size: its memory, bytes; `size_of` returns that of a result.
            now: seconds on the clock of the other calls.
        """
        if self._keep_s <= 0:
            return
        with self._lock:
            self._drop(key)
            self._kept[key] = _StoredResult(value, size, now + self._keep_s)
            self._bytes += size
            self._forget(now)

    def get(self, key: str, now: float) -> T | None:
        """Return what is kept by a key, None if there is nothing."""
        with self._lock:
            self._forget(now)
            kept = self._kept.get(key)
            return None if kept is None else kept.value

    def clear(self) -> None:
        """Forget all values."""
        with self._lock:
            self._kept.clear()
            self._bytes = 0

    def values(self, now: float) -> list[T]:
        """Return all that is kept, the oldest first."""
        with self._lock:
            self._forget(now)
            return [kept.value for kept in self._kept.values()]

    def _forget(self, now: float) -> None:
        while self._kept:
            oldest = next(iter(self._kept))
            full = len(self._kept) > self._most or self._bytes > self._most_bytes
            if not full and now < self._kept[oldest].end_s:
                return
            self._drop(oldest)

    def _drop(self, key: str) -> None:
        kept = self._kept.pop(key, None)
        if kept is not None:
            self._bytes -= kept.size


def size_of(result: Result) -> int:
    """Return about how many bytes of memory a result takes, with what keeping it takes."""
    return 1000 + sum(sys.getsizeof(value) for value in vars(result).values())


def segments_of(
    generations: Iterable[Generation], agent: str, request_id: str = ""
) -> list[Segment]:
    """Return the delivered segments of the newest epoch of each plan that is served for an agent.

    Nothing is kept for this: a generation holds its segments as long as it is served, and the
    server's limits of requests and of tokens bound them.

    Args:
        generations: being served, in order of arrival.
        agent: the robot; empty: any, if there is a request's id.
        request_id: the plan; empty: all of the agent.

    Raises:
        RequestError: neither is given, no such plan is served, or it is another agent's.
    """
    if not request_id:
        check_asked(agent, "", None)
        plans, _ = by_kind(generations)
        mine = (plan for plan in plans if plan.request.agent == agent)
        return [segment for plan in mine for segment in plan.segments]
    found = next((g for g in generations if g.key == request_id), None)
    check_asked(agent, request_id, found.request if found else None)
    assert isinstance(found, PlanGeneration)
    return list(found.segments)


def check_asked(agent: str, request_id: str, found: Request | None) -> None:
    """Check what a client asks for; see `segments_of`.

    Args:
        agent: the robot; empty: any.
        request_id: the plan; empty: all of the agent.
        found: the request that is served by this id.

    Raises:
        RequestError: neither name is given, or the request is no plan of the agent.
    """
    if not (agent or request_id):
        raise RequestError("the segments of which plan: give the agent, or the request's id")
    if not request_id:
        return
    if found is None:
        raise RequestError(
            f"no request {quoted(request_id)} is being served: it has ended, or this server never"
            " had it"
        )
    if not isinstance(found, PlanRequest):
        raise RequestError(f"request {quoted(request_id)} is no plan, and has no segments")
    if agent not in ("", found.agent):
        raise RequestError(f"request {quoted(request_id)} is not one of {quoted(agent)}")
