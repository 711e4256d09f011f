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
        self._agents: dict[str, str] = {}  # of the requests being served
        self._skill_sets: set[str] = set()
        self._open = True
        self._closed = False

    def __len__(self) -> int:
        return len(self._agents)

    def __contains__(self, request_id: str) -> bool:
        return request_id in self._agents

    def open(self, wide: bool) -> None:
        """Let requests in from now on, or refuse all."""
        with self._lock:
            self._open = wide

    def close(self) -> None:
        """Refuse all requests for ever."""
        with self._lock:
            self._closed = True

    def know(self, skill_set: str) -> None:
        """Let requests of a skill set in."""
        with self._lock:
            self._skill_sets.add(skill_set)

    def enter(self, request: Request) -> None:
        """Let a request in, until it leaves.

        Raises:
            Rejected: it is not taken, and why.
        """
        with self._lock:
            problem = self._problem(request)
            if problem is not None:
                raise problem
            self._agents[request.request_id] = request.agent

    def leave(self, request_id: str) -> None:
        """Take note that a request has ended."""
        with self._lock:
            self._agents.pop(request_id, None)

    def _problem(self, request: Request) -> Rejected | None:
        limits, agent = self.limits, request.agent
        if self._closed:
            return Rejected(ErrorCode.SHUTTING_DOWN, "the server stops")
        if not self._open:
            return Rejected(ErrorCode.INACTIVE, "the server is inactive: activate it first")
        if isinstance(request, PlanRequest) and request.skill_set not in self._skill_sets:
            known = listed(sorted(self._skill_sets))
            return Rejected(
                ErrorCode.UNKNOWN_SKILL_SET,
                f"unknown skill set {quoted(request.skill_set)}: registered are {known}",
            )
        if request.request_id in self._agents:
            return Rejected(
                ErrorCode.DUPLICATE_REQUEST,
                f"a request {quoted(request.request_id)} is being served already",
            )
        if len(self._agents) >= limits.max_requests:
            return Rejected(
                ErrorCode.QUEUE_FULL,
                f"{len(self._agents)} requests are being served, the most allowed: try later",
            )
        if sum(other == agent for other in self._agents.values()) >= limits.max_requests_per_agent:
            return Rejected(
                ErrorCode.AGENT_LIMIT,
                f"{limits.max_requests_per_agent} requests of {quoted(agent)} are being served, the"
                " most allowed for one agent",
            )
        return None
