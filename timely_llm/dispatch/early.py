"""Results that come before the last segments and tokens of their requests."""

from __future__ import annotations

from dataclasses import dataclass

from timely_llm.core.request import Result

OVERTAKEN_S = 5.0
"""Seconds in which a result waits for segments and tokens that it has overtaken. DDS repeats a lost
message after the next heartbeat of its writer, by default up to 3 s later."""


@dataclass(frozen=True)
class EarlyResult:
    """A result that waits.

    Attributes:
        server: its server.
        result: the result.
        until_s: when it counts all the same.
    """

    server: str
    result: Result
    until_s: float


class EarlyResults:
    """Keeps results that have overtaken deliveries: these come by another topic."""

    def __init__(self) -> None:
        self._waiting: dict[str, EarlyResult] = {}

    def waits(self, server: str, result: Result, now: float) -> bool:
        """Let a result wait that lacks deliveries; return whether it still does."""
        early = self._waiting.get(result.request_id)
        if early is None or early.server != server:
            early = EarlyResult(server, result, now + OVERTAKEN_S)
            self._waiting[result.request_id] = early
        return now < early.until_s

    def of(self, request_id: str) -> EarlyResult | None:
        """Return the result of a request that waits."""
        return self._waiting.get(request_id)

    def due(self, now: float) -> list[EarlyResult]:
        """Return the results that have waited for long enough."""
        return [one for one in self._waiting.values() if one.until_s <= now]

    def drop(self, request_id: str, server: str) -> None:
        """Forget a server's result of a request."""
        early = self._waiting.get(request_id)
        if early is not None and early.server == server:
            del self._waiting[request_id]
