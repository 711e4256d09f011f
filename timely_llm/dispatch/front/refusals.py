"""Servers that have refused a request, and why."""

from __future__ import annotations

from timely_llm.core.request import ErrorCode

MOST_FAILURES = 2
"""Engines that a request may have failed with before it ends: it may be what makes them fail."""


class Refusals:
    """Remembers which servers have refused a request or ended it without a result."""

    def __init__(self) -> None:
        self._codes: dict[str, dict[str, ErrorCode]] = {}  # by request and server

    def __contains__(self, request_id: str) -> bool:
        """Return whether a server has refused a request."""
        return request_id in self._codes

    def add(self, request_id: str, server: str, code: ErrorCode) -> None:
        """Record that a server has refused a request, and why."""
        self._codes.setdefault(request_id, {})[server] = code

    def bars(self, request_id: str, server: str) -> bool:
        """Return whether a server has refused a request."""
        return server in self._codes.get(request_id, ())

    def has_failed(self, request_id: str) -> bool:
        """Return whether `MOST_FAILURES` engines have failed with a request: it must end then."""
        codes = list(self._codes.get(request_id, {}).values())
        return codes.count(ErrorCode.ENGINE_FAILED) >= MOST_FAILURES

    def forget(self, request_id: str) -> None:
        """Forget which servers have refused a request: all may be asked again, or it has ended."""
        self._codes.pop(request_id, None)
