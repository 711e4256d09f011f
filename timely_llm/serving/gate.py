"""The gate: which requests a server takes."""

from __future__ import annotations

import threading
from dataclasses import dataclass

from timely_llm.core.echo import listed, quoted
from timely_llm.core.request import ErrorCode, PlanRequest, Rejected, Request


@dataclass(frozen=True)
class Limits:
    """What a server takes on.

    Attributes:
        max_requests: most requests being served at a time.
        max_requests_per_agent: of these, most of one agent.
        max_skill_sets: most registered skill sets; each keeps its prompt in memory.
    """

    max_requests: int = 256
    max_requests_per_agent: int = 16
    max_skill_sets: int = 64


class Gate:
    """Counts the requests that are being served; may be used from any thread.

    Args:
        limits: when to refuse.
    """

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self._lock = threading.Lock()
        self._requests: dict[str, Request] = {}  # being served
        self._skill_sets: set[str] = set()
        self._open = True
        self._closed: tuple[ErrorCode, str] | None = None

    def __len__(self) -> int:
        return len(self._requests)

    def __contains__(self, request_id: str) -> bool:
        return request_id in self._requests

    @property
    def requests(self) -> list[Request]:
        """The requests that were let in and have not left, in order of arrival."""
        with self._lock:
            return list(self._requests.values())

    def open(self, wide: bool) -> None:
        """Let requests in from now on, or refuse all."""
        with self._lock:
            self._open = wide

    def close(
        self, code: ErrorCode = ErrorCode.SHUTTING_DOWN, reason: str = "the server stops"
    ) -> None:
        """Refuse all requests for ever; the first reason stands."""
        with self._lock:
            self._closed = self._closed or (code, reason)

    def know(self, skill_set: str) -> None:
        """Let requests of a skill set in."""
        with self._lock:
            self._skill_sets.add(skill_set)

    def forget(self, skill_set: str) -> None:
        """Refuse requests of a skill set from now on."""
        with self._lock:
            self._skill_sets.discard(skill_set)

    def enter(self, request: Request) -> None:
        """Let a request in, until it leaves.

        Raises:
            Rejected: it is not taken, and why.
        """
        with self._lock:
            problem = self._problem(request)
            if problem is not None:
                raise problem
            self._requests[request.request_id] = request

    def leave(self, request_id: str) -> bool:
        """Take note that a request has ended; return whether it had not: one caller ends it."""
        with self._lock:
            return self._requests.pop(request_id, None) is not None

    def _problem(self, request: Request) -> Rejected | None:
        limits, agent = self.limits, request.agent
        if self._closed:
            return Rejected(*self._closed)
        if not self._open:
            return Rejected(ErrorCode.INACTIVE, "the server is inactive: activate it first")
        if isinstance(request, PlanRequest) and request.skill_set not in self._skill_sets:
            known = listed(sorted(self._skill_sets))
            return Rejected(
                ErrorCode.UNKNOWN_SKILL_SET,
                f"unknown skill set {quoted(request.skill_set)}: registered are {known}",
            )
        if request.request_id in self._requests:
            return Rejected(
                ErrorCode.DUPLICATE_REQUEST,
                f"a request {quoted(request.request_id)} is being served already",
            )
        if len(self._requests) >= limits.max_requests:
            return Rejected(
                ErrorCode.QUEUE_FULL,
                f"{len(self._requests)} requests are being served, the most allowed: try later",
            )
        its_own = sum(other.agent == agent for other in self._requests.values())
        if its_own >= limits.max_requests_per_agent:
            return Rejected(
                ErrorCode.AGENT_LIMIT,
                f"{limits.max_requests_per_agent} requests of {quoted(agent)} are being served, the"
                " most allowed for one agent",
            )
        return None
