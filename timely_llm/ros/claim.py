"""The claim on the action's name: two servers that both answered it would be one broken server.

What decides is the ROS graph, never a message: who offers the action has its name, and who is about
to offer it shows that by an endpoint on a topic on which nothing is ever published. A server that
serves keeps on serving, whatever appears. What anyone else in the domain can do is to keep a *new*
server from starting, whose error then names the node.
"""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass

from diagnostic_msgs.msg import KeyValue
from rclpy.node import Node

from timely_llm.core.clock import Clock
from timely_llm.core.echo import echoed, listed
from timely_llm.core.errors import ConfigurationError

TOPIC = "plan/_claim"
LOOK_S = 0.3
"""A new server looks so long before it loads a model: half of those that are there are found then.
"""
FIND_S = 3.5
"""So old a server is when it begins to serve: DDS announces participants every 3 s, so that by then
servers that start together have found each other, and only one of them goes on."""
NAME_S = 1.0
"""How long to wait for the name of a node whose endpoints are known."""
POLL_S = 0.02
AGAIN_S = 60.0
"""How often two servers of one name are told in the log."""
PARTICIPANT = 12
"""Bytes of an endpoint's GID that all endpoints of a process have in common."""


@dataclass(frozen=True)
class Holder:
    """A node that offers the action, or is about to.

    Attributes:
        node: its full name.
        process: first bytes of the GIDs of its endpoints.
    """

    node: str
    process: bytes

    @property
    def named(self) -> bool:
        """Whether the name is known already: it comes after the endpoints."""
        return "_UNKNOWN_" not in self.node


class Claim:
    """Finds out whether another server has the name of the action.

    Args:
        node: whose action it is.
        clock: tells this server's age.
    """

    def __init__(self, node: Node, clock: Clock) -> None:
        self._node = node
        self._clock = clock
        self._born_s = clock.now()
        self._offers = False
        self._told_s = -AGAIN_S
        self._seen: list[Holder] = []
        self._conflict = ""
        self._publisher = node.create_publisher(KeyValue, TOPIC, 1)
        self._process = self._own_process()

    @property
    def age_s(self) -> float:
        """How old this server is, seconds."""
        return self._clock.now() - self._born_s

    def check(self) -> None:
        """Find out whether this server may begin to serve.

        Of two that are about to, the one with the smaller GID goes on.

        Raises:
            ConfigurationError: another one has the name, and which.
        """
        end_s = time.monotonic() + NAME_S
        while holders := self._in_the_way():
            if all(holder.named for holder in holders) or time.monotonic() > end_s:
                raise ConfigurationError(
                    f"another plan server has the action {self._action} in ROS domain {_domain()}"
                    f" (node {_names(holders)}): stop it, or give this one a namespace with"
                    " `--ros-args -r __ns:=/NAME`"
                )
            time.sleep(POLL_S)

    def begun(self) -> None:
        """Take note that this server offers the action now."""
        self._offers = True

    def conflict(self) -> str:
        """Return what is wrong if others offer the action too, in one sentence; else nothing.

        What the graph tells counts when it is the same twice: nodes become known bit by bit.
        """
        others, seen = self._serving(), self._seen
        self._seen = others
        if others == seen:
            self._conflict = self._sentence(others) if others else ""
        return self._conflict

    def _sentence(self, others: Sequence[Holder]) -> str:
        return (
            f"{len(others) + 1} plan servers answer the action {self._action} in ROS domain"
            f" {_domain()}, this one (node {self._node.get_fully_qualified_name()}) and node"
            f" {_names(others)}: stop all but one, or give each a namespace"
        )

    def is_news(self) -> bool:
        """Return whether a conflict is to be told again in the log."""
        now = self._clock.now()
        if now < self._told_s + AGAIN_S:
            return False
        self._told_s = now
        return True

    @property
    def _action(self) -> str:
        return self._node.resolve_service_name("plan")

    def _serving(self) -> list[Holder]:
        """Return the others that offer the action: its services, and the topic of its states."""
        if self._node.count_services(f"{self._action}/_action/send_goal") <= self._offers:
            return []
        found = self._holders(f"{self._action}/_action/status")
        return found or [Holder("that publishes no states of goals", b"")]

    def _in_the_way(self) -> list[Holder]:
        """Return who serves already, or else who is to begin before this one."""
        return self._serving() or [h for h in self._starting() if h.process < self._process]

    def _starting(self) -> list[Holder]:
        """Return the others that are about to offer it."""
        return self._holders(TOPIC)

    def _holders(self, topic: str) -> list[Holder]:
        found = (
            Holder(
                f"{info.node_namespace.rstrip('/')}/{info.node_name}",
                bytes(info.endpoint_gid)[:PARTICIPANT],
            )
            for info in self._node.get_publishers_info_by_topic(topic)
        )
        others = (holder for holder in found if holder.process != self._process)
        return sorted(others, key=lambda holder: (holder.node, holder.process))

    def _own_process(self) -> bytes:
        """Return what the GIDs of this process begin with: a topic that nobody else has tells."""
        topic = f"{TOPIC}/key_{uuid.uuid4().hex}"
        publisher = self._node.create_publisher(KeyValue, topic, 1)
        infos = self._node.get_publishers_info_by_topic(self._node.resolve_topic_name(topic))
        self._node.destroy_publisher(publisher)
        return bytes(infos[0].endpoint_gid)[:PARTICIPANT]


def _names(holders: Sequence[Holder]) -> str:
    return listed(sorted({echoed(holder.node, 200) for holder in holders}), 4)


def _domain() -> str:
    return os.environ.get("ROS_DOMAIN_ID", "0")
