"""The claim on the action's name: two servers that both answered it would be one broken server."""

from __future__ import annotations

import os
import uuid

from diagnostic_msgs.msg import KeyValue
from rclpy.node import Node
from rclpy.qos import DurabilityPolicy, QoSProfile, ReliabilityPolicy

from timely_llm.core.clock import Clock
from timely_llm.core.errors import ConfigurationError

TOPIC = "plan/_claim"
TIE_S = 0.2
"""Servers that are closer in age decide by their random keys."""


class Claim:
    """Tells other servers how old this one is; the younger one of two gives way.

    Ages cross the wire, not times: clocks differ. A claim that is kept for late joiners is too low
    by then, so an older server is found out at its next renewal at the latest, and never gives way.

    Args:
        node: publishes it.
        clock: tells this server's age.
    """

    def __init__(self, node: Node, clock: Clock) -> None:
        self._node = node
        self._clock = clock
        self._key = uuid.uuid4().hex
        self._born_s = clock.now()
        self._older = False
        latched = QoSProfile(
            depth=1,
            durability=DurabilityPolicy.TRANSIENT_LOCAL,
            reliability=ReliabilityPolicy.RELIABLE,
        )
        self._publisher = node.create_publisher(KeyValue, TOPIC, latched)
        node.create_subscription(KeyValue, TOPIC, self._on_claim, latched)
        self.renew()

    @property
    def age_s(self) -> float:
        """How old this server is, seconds."""
        return self._clock.now() - self._born_s

    def renew(self) -> None:
        """Say again how old this server is."""
        self._publisher.publish(KeyValue(key=self._key, value=f"{self.age_s:.3f}"))

    def check(self) -> None:
        """Find out whether an older server has the name.

        Raises:
            ConfigurationError: it has.
        """
        if self._older:
            action = self._node.resolve_service_name("plan")
            domain = os.environ.get("ROS_DOMAIN_ID", "0")
            raise ConfigurationError(
                f"another plan server has the action {action} in ROS domain {domain}: stop it, or"
                " give this one a namespace with `--ros-args -r __ns:=/NAME`"
            )

    def _on_claim(self, claim: KeyValue) -> None:
        if claim.key == self._key:
            return
        try:
            ahead_s = float(claim.value) - self.age_s
        except ValueError:
            return  # of something else than a plan server
        tied = abs(ahead_s) < TIE_S
        self._older = self._older or (claim.key < self._key if tied else ahead_s > 0)
