"""A thread that takes what servers deliver, so that no segment waits for the node's other work."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from rclpy.event_handler import SubscriptionEventCallbacks
from rclpy.executors import ExternalShutdownException, ShutdownException, SingleThreadedExecutor
from rclpy.node import Node

from timely_llm.ros import qos
from timely_llm.ros.guarded import Guard, Guarded

ENDS_S = 2.0
"""Longest wait for a callback that is running when the thread ends, seconds."""


class DeliveryThread:
    """Subscriptions in a thread of their own.

    rclpy's executors go through all entities of their nodes before and after each wait. A
    dispatcher's node has a hundred of them with three servers, and that takes a millisecond. The
    node of this thread has two for each server.

    Args:
        node: the dispatcher's node; that of the thread is hidden, and named after it.
    """

    def __init__(self, node: Node) -> None:
        self._node = Guarded(
            f"_{node.get_name()}_deliveries", namespace=node.get_namespace(),
            context=node.context, use_global_arguments=False, enable_rosout=False,
            start_parameter_services=False,
        )  # fmt: skip
        self._executor = SingleThreadedExecutor(context=node.context)
        self._executor.add_node(self._node)
        self._runs = True
        self._thread = threading.Thread(target=self._run, name="deliveries", daemon=True)
        self._thread.start()

    def listen(
        self, kind: Any, topic: str, take: Callable[[Any], None], depth: int
    ) -> Callable[[], object]:
        """Subscribe reliably; return a function that ends the subscription.

        Args:
            kind: type of the messages.
            topic: full name of the topic.
            take: takes a message, in this thread.
            depth: messages kept until they are taken.
        """
        made = self._node.create_subscription(
            kind, topic, take, qos.reliable(depth),
            event_callbacks=SubscriptionEventCallbacks(use_default_callbacks=False),
        )  # fmt: skip
        return lambda: self._node.destroy_subscription(made)

    def close(self) -> None:
        """End the thread and its subscriptions."""
        self._executor.create_task(self._end)
        self._thread.join(ENDS_S)
        self._executor.shutdown(timeout_sec=0)
        self._node.destroy_node()

    def _end(self) -> None:
        self._runs = False

    def _run(self) -> None:
        guard = Guard("the executor of deliveries", self._node.get_logger)
        while self._runs:
            try:
                self._executor.spin_once()
            except (ExternalShutdownException, ShutdownException):
                return
            except Exception as error:  # of rclpy itself, such as an unreadable message
                guard.failed(error)
