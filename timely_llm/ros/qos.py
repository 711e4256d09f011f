"""Quality of service: this package's defaults, and the users' overrides by parameter."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from rclpy.node import Node
from rclpy.publisher import Publisher
from rclpy.qos import QoSProfile, ReliabilityPolicy
from rclpy.qos_overriding_options import QoSOverridingOptions

from timely_llm.core.errors import ConfigurationError
from timely_llm.ros.process import reason

QUEUE = 256
"""Messages kept for a slow reader: more than a burst of segments."""
TOKENS = 4096
"""The same for tokens: half a second of a server that makes thousands a second."""
Entity = TypeVar("Entity")


def reliable(depth: int = QUEUE) -> QoSProfile:
    """Return the profile of messages that must not get lost."""
    return QoSProfile(depth=depth, reliability=ReliabilityPolicy.RELIABLE)


def of_action(feedback: str) -> dict[str, Any]:
    """Return the profiles of an action's server ("pub") or client ("sub").

    By default its services keep ten requests. A larger burst would lose the others, and their
    clients would wait for ever.
    """
    names = (f"feedback_{feedback}", "goal_service", "result_service", "cancel_service")
    return {f"{name}_qos_profile": reliable() for name in names}


def publisher(node: Node, kind: Any, topic: str, depth: int = QUEUE) -> Publisher[Any]:
    """Return a reliable publisher; users may override its history, depth and reliability.

    The parameters are `qos_overrides./TOPIC.publisher.depth` and so on, with the topic's full name;
    they are read at the start.

    Raises:
        ConfigurationError: an override is not possible.
    """
    return _made(
        topic,
        lambda: node.create_publisher(
            kind, topic, reliable(depth),
            qos_overriding_options=QoSOverridingOptions.with_default_policies(),
        ),
    )  # fmt: skip


def subscribe(node: Node, kind: Any, topic: str, callback: Callable[[Any], None]) -> None:
    """Subscribe reliably; overrides as in `publisher`: `qos_overrides./TOPIC.subscription...`.

    Raises:
        ConfigurationError: an override is not possible.
    """
    _made(
        topic,
        lambda: node.create_subscription(
            kind, topic, callback, reliable(),
            qos_overriding_options=QoSOverridingOptions.with_default_policies(),
        ),
    )  # fmt: skip


def _made(topic: str, make: Callable[[], Entity]) -> Entity:
    try:
        return make()
    except Exception as error:  # rclpy has a different one for each way to be wrong
        raise ConfigurationError(
            f"cannot use the qos_overrides of {topic}: {reason(error)}"
        ) from error
