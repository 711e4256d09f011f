"""Something that was asked of a server, as its client waits for it: no ROS, any thread."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from timely_llm.core.echo import quoted
from timely_llm.core.errors import TimelyError
from timely_llm.core.request import ErrorCode, Result

if TYPE_CHECKING:
    from timely_llm.ros.execution import MadeCall

AnyResult = TypeVar("AnyResult", bound=Result)


class PlanClientError(TimelyError):
    """What was asked did not come to its end.

    Attributes:
        code: why, as the server sees it.
        calls: the calls of skills that `execute` had made until then.
    """

    def __init__(self, message: str, code: ErrorCode = ErrorCode.NONE) -> None:
        super().__init__(message)
        self.code = code
        self.calls: tuple[MadeCall, ...] = ()


class PlanTimeout(PlanClientError, TimeoutError):
    """Something that was waited for did not come in time."""


class Canceler(Protocol):
    """Who can end a request."""

    def cancel(self, request_id: str) -> None:
        """Ask the server to end a request."""
        ...


class Pending(Generic[AnyResult]):
    """A request that is open until its result comes.

    Attributes:
        request_id: what the server calls it.
        agent: who asked.
    """

    def __init__(self, request_id: str, agent: str, canceler: Canceler) -> None:
        self.request_id = request_id
        self.agent = agent
        self._canceler = canceler
        self._changed = threading.Condition()
        self._canceling = False
        self._result: AnyResult | None = None
        self._closed = ""

    @property
    def done(self) -> bool:
        """Whether nothing more comes of it."""
        return self._result is not None or bool(self._closed)

    def cancel(self, timeout_s: float = 5.0) -> bool:
        """End the request; return whether this ended it.

        Raises:
            PlanTimeout: the server did not answer in time.
        """
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
            PlanTimeout: it did not end in time.
            PlanClientError: the client was closed before.
        """
        return self.await_result(timeout_s)

    def await_result(self, timeout_s: float) -> AnyResult:
        """Return how the request ended, and do nothing to let it end; raises as `result`."""
        with self._changed:
            self._wait(lambda: self.done, timeout_s, "did not end")
            return self._ended()

    def finish(self, result: AnyResult) -> None:
        """Take the result; only the first one counts."""
        with self._changed:
            self._result = self._result or result
            self._changed.notify_all()

    def close(self, reason: str) -> None:
        """Let nobody wait any more."""
        with self._changed:
            self._closed = self._closed or reason
            self._changed.notify_all()

    def _ended(self) -> AnyResult:
        """Return the result.

        Raises:
            PlanClientError: none will come.
        """
        if self._result is None:
            raise PlanClientError(self._closed)
        return self._result

    def _wait(self, condition: Callable[[], bool], timeout_s: float, what: str) -> None:
        if not self._changed.wait_for(condition, timeout_s):
            raise PlanTimeout(f"request {quoted(self.request_id)} {what} within {timeout_s:g} s")
