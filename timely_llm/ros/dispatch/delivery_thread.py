"""A thread that takes what servers deliver, so that no segment waits for the node's other work."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from rclpy.event_handler import SubscriptionEventCallbacks
from rclpy.impl.implementation_singleton import rclpy_implementation
from rclpy.node import Node

from timely_llm.ros import qos
from timely_llm.ros.guarded import Guard, Guarded

ENDS_S = 2.0
"""Longest wait for a callback that is running when the thread ends, seconds."""


class DeliveryThread:
    """Subscriptions in a thread of their own.

    rclpy's executors go through all entities of their nodes for each message, and make a wait set
    and a task for it. This thread keeps one wait set until its subscriptions change. The events
    executor of rclpy 7.1.5 blocks for ever if another thread publishes to a node of its process.

    Args:
        node: the dispatcher's node; that of the thread is hidden, and named after it.
    """

    def __init__(self, node: Node) -> None:
        self._node = Guarded(
            f"_{node.get_name()}_deliveries", namespace=node.get_namespace(),
            context=node.context, use_global_arguments=False, enable_rosout=False,
            start_parameter_services=False,
        )  # fmt: skip
        self._subscriptions: list[Any] = []
        self._changing = threading.Lock()
        self._changed = False
        self._news: Any = self._node.create_guard_condition(lambda: None)
        self._runs = True
        self._thread = threading.Thread(target=self._run, name="deliveries", daemon=True)
        self._thread.start()
        node.context.on_shutdown(self._change)

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
        with self._changing:
            self._subscriptions.append(made)
        self._change()
        return lambda: self._end(made)

    def close(self) -> None:
        """End the thread and its subscriptions."""
        self._runs = False
        self._change()
        self._thread.join(ENDS_S)
        self._node.destroy_node()

    def _end(self, subscription: Any) -> None:
        with self._changing:
            self._subscriptions.remove(subscription)
            self._node.destroy_subscription(subscription)  # freed when the thread leaves it
        self._change()

    def _change(self) -> None:
        """Let the thread look at its subscriptions again; of any thread."""
        self._changed = True
        if self._thread.is_alive():
            self._news.trigger()

    def _run(self) -> None:
        guard = Guard("the thread of deliveries", self._node.get_logger)
        while self._runs and self._node.context.ok():
            try:
                self._take()
            except Exception as error:  # of rclpy itself, such as an unreadable message
                guard.failed(error)

    def _take(self) -> None:
        """Take messages until the subscriptions change: one of each in turn."""
        context: Any = self._node.context.handle
        with ExitStack() as in_use:
            with self._changing:
                self._changed = False
                present = [(one, one.handle) for one in self._subscriptions]
                for entity in (context, *(handle for _, handle in present)):
                    in_use.enter_context(entity)
            waits = rclpy_implementation.WaitSet(len(present), 1, 0, 0, 0, 0, context)
            while not self._changed:
                waits.clear_entities()
                for _, handle in present:
                    waits.add_subscription(handle)
                waits.add_guard_condition(self._news.handle)
                waits.wait(-1)
                ready = waits.get_ready_entities("subscription")
                for one, handle in present:
                    if handle.pointer in ready:
                        taken = handle.take_message(one.msg_type, one.raw)
                        if taken is not None:
                            one.callback(taken[0])
