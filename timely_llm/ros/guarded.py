"""Nodes that survive exceptions of their callbacks.

In rclpy, an exception of a callback ends `spin`, and with the events executor the process. The same
holds for rclpy's own callbacks: a parameter of an unknown type is enough.
"""

from __future__ import annotations

import inspect
import time
import traceback
import weakref
from collections.abc import Callable
from functools import wraps
from typing import Any

from rcl_interfaces.msg import SetParametersResult
from rclpy.logging import get_logger
from rclpy.node import Node

from timely_llm.core.errors import first_line
from timely_llm.core.request import ErrorCode
from timely_llm.core.text import sendable

REPEAT_S = 5.0
"""Shortest time between two log lines of one failing callback, seconds."""
MAX_SENTENCE = 300
MAX_TRACEBACK = 4000
Callback = Callable[..., Any]
GetLogger = Callable[[], Any]


class Guard:
    """Logs the exceptions of one callback.

    Args:
        what: name of the callback in the log.
        logger: returns the node's logger.
    """

    def __init__(self, what: str, logger: GetLogger) -> None:
        self._what = what
        self._logger = logger
        self._logged_s = -REPEAT_S
        self._passed_over = 0

    def failed(self, error: Exception) -> str:
        """Log an error; return its sentence."""
        words = " ".join(first_line(error).split())
        sentence = sendable(f"{self._what} failed: {type(error).__name__}: {words}")
        if len(sentence) > MAX_SENTENCE:
            sentence = sentence[: MAX_SENTENCE - 3] + "..."
        now = time.monotonic()
        if now < self._logged_s + REPEAT_S:
            self._passed_over += 1
            return sentence
        times = f" (and {self._passed_over} times before)" if self._passed_over else ""
        self._logged_s, self._passed_over = now, 0
        self._logger().error(sentence + times)
        trace = "".join(traceback.format_exception(error))
        self._logger().debug(sendable(trace[-MAX_TRACEBACK:]))
        return sentence

    def wrap(self, callback: Callback, otherwise: Callable[..., Any] | None = None) -> Callback:
        """Return a callback that raises nothing.

        Args:
            callback: a function or a coroutine function.
            otherwise: makes the returned value after an error, from the sentence and the arguments.
        """

        def answer(error: Exception, arguments: tuple[Any, ...]) -> Any:
            sentence = self.failed(error)
            return None if otherwise is None else otherwise(sentence, *arguments)

        if inspect.iscoroutinefunction(callback):

            @wraps(callback)
            async def guarded_coroutine(*arguments: Any) -> Any:
                try:
                    return await callback(*arguments)
                except Exception as error:
                    return answer(error, arguments)

            return guarded_coroutine

        @wraps(callback)
        def guarded(*arguments: Any) -> Any:
            try:
                return callback(*arguments)
            except Exception as error:
                return answer(error, arguments)

        return guarded


class Guarded(Node):
    """A node that logs the exceptions of its callbacks, and answers each call of its services."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        for service in self.services:  # a life cycle makes its own without create_service
            if not hasattr(service.callback, "__wrapped__"):
                service.callback = self._answering(service.srv_name, service.callback)

    def create_subscription(
        self, msg_type: Any, topic: str, callback: Callback, *arguments: Any, **options: Any
    ) -> Any:
        """Subscribe; see `rclpy.node.Node`."""
        guarded = self._guard(f"a message on {topic}").wrap(callback)
        return super().create_subscription(msg_type, topic, guarded, *arguments, **options)

    def create_service(
        self, srv_type: Any, srv_name: str, callback: Callback, *arguments: Any, **options: Any
    ) -> Any:
        """Offer a service; see `rclpy.node.Node`."""
        guarded = self._answering(srv_name, callback)
        return super().create_service(srv_type, srv_name, guarded, *arguments, **options)

    def create_timer(  # type: ignore[override]
        self, timer_period_sec: float, callback: Callback, *arguments: Any, **options: Any
    ) -> Any:
        """Call a function periodically; see `rclpy.node.Node`."""
        guarded = self._guard("a timer").wrap(callback)
        return super().create_timer(timer_period_sec, guarded, *arguments, **options)

    def add_waitable(self, waitable: Any) -> None:
        """Add an action's server or client; see `rclpy.node.Node`."""
        whole = weakref.WeakMethod(waitable.execute)  # rclpy frees it with its last reference

        async def execute(data: Any) -> None:
            work = whole()
            if work is not None:
                await work(data)

        waitable.execute = self._guard("an action's message").wrap(execute)
        super().add_waitable(waitable)

    def _guard(self, what: str) -> Guard:
        node = weakref.ref(self)

        def logger() -> Any:
            return get_logger("timely_llm") if (found := node()) is None else found.get_logger()

        return Guard(what, logger)

    def _answering(self, name: str, callback: Callback) -> Callback:
        return self._guard(f"a call of {name}").wrap(callback, failure)


def failure(sentence: str, request: Any, response: Any) -> Any:
    """Return the answer to a failed call: a new response, with the error where it has a field."""
    answer = type(response)()
    fields = type(response).get_fields_and_field_types()
    if "error_code" in fields:
        answer.error_code = int(ErrorCode.ENGINE_FAILED)
    if "error_msg" in fields:
        answer.error_msg = sentence
    refused = SetParametersResult(successful=False, reason=sentence)
    if fields.get("result") == "rcl_interfaces/SetParametersResult":
        answer.result = refused
    if fields.get("results") == "sequence<rcl_interfaces/SetParametersResult>":
        answer.results = [refused] * len(request.parameters)
    return answer
