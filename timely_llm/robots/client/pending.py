"""A request that is open until its result comes, and the errors of clients."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from timely_llm.core.arguments import seconds
from timely_llm.core.errors import TimelyError
from timely_llm.core.request import ErrorCode, Result
from timely_llm.core.text import quoted
from timely_llm.robots.client.execution import MadeCall

AnyResult = TypeVar("AnyResult", bound=Result)


class PlanClientError(TimelyError):
    """A call of a client failed.

    Attributes:
        code: the server's reason.
        retry_after_s: seconds after which the same request may be taken, with BUSY or AGENT_LIMIT;
            0: nothing is known.
        calls: the calls of skills that `execute` had made.
    """

    def __init__(
        self, message: str, code: ErrorCode = ErrorCode.NONE, retry_after_s: float = 0.0
    ) -> None:
        super().__init__(message)
        self.code = code
        self.retry_after_s = retry_after_s
        self.calls: tuple[MadeCall, ...] = ()


def failed(result: Result) -> PlanClientError:
    """Return the error of a result that is one."""
    return PlanClientError(result.error_msg, result.error_code, result.retry_after_s)


class PlanTimeout(PlanClientError, TimeoutError):
    """An answer did not come in time."""


class ServerLost(PlanClientError):
    """The server died, stopped or forgot the request: how the request ended is unknown.

    The client stays usable. Its next request waits for a server as the first one did.
    """

    def __init__(self, message: str, code: ErrorCode = ErrorCode.SHUTTING_DOWN) -> None:
        super().__init__(message, code)


class Canceler(Protocol):
    """The part of a client that ends requests."""

    def cancel(self, request_id: str) -> None:
        """Ask the server to end a request."""
        ...


class Pending(Generic[AnyResult]):
    """A request that is open until its result comes.

    Attributes:
        request_id: unique on the server.
        agent: the robot or person of the request.
    """

    def __init__(self, request_id: str, agent: str, canceler: Canceler) -> None:
        self.request_id = request_id
        self.agent = agent
        self._canceler = canceler
        self._changed = threading.Condition()
        self._canceling = False
        self._result: AnyResult | None = None
        self._closed = ""
        self._lost = False

    @property
    def done(self) -> bool:
        """Whether the request has a result, or never will."""
        return self._result is not None or bool(self._closed)

    @property
    def canceling(self) -> bool:
        """Whether the server was asked to end the request while it was open."""
        return self._canceling

    def cancel(self, timeout_s: float = 5.0) -> bool:
        """End the request; return whether this call ended it.

        Raises:
            PlanTimeout: the server did not answer in time.
        """
        timeout_s = seconds("timeout_s", timeout_s, error=PlanClientError)
        self.ask_to_cancel()
        return self.await_result(timeout_s).error_code is ErrorCode.CANCELED

    def ask_to_cancel(self) -> None:
        """Ask the server to end the request; does not wait."""
        with self._changed:
            ended = self.done
            self._canceling = self._canceling or not ended
            self._changed.notify_all()
        if not ended:
            self._canceler.cancel(self.request_id)

    def result(self, timeout_s: float = 60.0) -> AnyResult:
        """Return how the request ended, also if it ended with an error.

        Raises:
            PlanTimeout: the request did not end in time.
            ServerLost: the server died, stopped or was restarted before.
            PlanClientError: the client was closed before.
        """
        return self.await_result(timeout_s)

    def await_result(self, timeout_s: float) -> AnyResult:
        """Wait for the result only, and return it; raises as `result`."""
        timeout_s = seconds("timeout_s", timeout_s, error=PlanClientError)
        with self._changed:
            self._wait(lambda: self.done, timeout_s, "did not end")
            return self._ended()

    def finish(self, result: AnyResult) -> None:
        """Take the result; only the first one counts."""
        with self._changed:
            self._result = self._result or result
            self._changed.notify_all()

    def close(self, reason: str) -> None:
        """End all waits: no result will come."""
        with self._changed:
            self._closed = self._closed or reason
            self._changed.notify_all()

    def lose(self, reason: str) -> None:
        """End all waits: the server is gone, or has forgotten the request."""
        with self._changed:
            self._lost = self._lost or not self.done
            self.close(reason)

    def _closing(self) -> PlanClientError:
        """Return why no result will come."""
        return ServerLost(self._closed) if self._lost else PlanClientError(self._closed)

    def _ended(self) -> AnyResult:
        """Return the result.

        Raises:
            PlanClientError: none will come.
        """
        if self._result is None:
            raise self._closing()
        return self._result

    def _wait(self, condition: Callable[[], bool], timeout_s: float, what: str) -> None:
        if not self._changed.wait_for(condition, timeout_s):
            raise PlanTimeout(f"request {quoted(self.request_id)} {what} within {timeout_s:g} s")
