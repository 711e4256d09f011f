"""The claim on the action's name: at most one server in a ROS domain may offer the action.

Only the ROS graph decides, never a message. The server that offers the action has its name. A
server that is about to offer it has an endpoint on a topic without messages, and one that serves
requests has an endpoint on another one. Two servers that serve under one name have been apart
before, as by a partition. Then the one without requests gives way. A server with requests goes on
serving, whatever appears. Another node of the domain can only keep a new server from starting, and
end one without requests; the error of that server names the node.
"""

from __future__ import annotations

import hashlib
import math
import os
import socket
import sys
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass

from diagnostic_msgs.msg import KeyValue
from rclpy.node import Node
from rclpy.publisher import Publisher

from timely_llm.core.clock import Clock
from timely_llm.core.errors import ConfigurationError, InUseError
from timely_llm.core.text import echoed, listed


class LocalClaim:
    """Holds a name on this machine for as long as the process lives, however it ends.

    Args:
        name: the claimed name; any text.

    Attributes:
        taken: another process, or this one, had the name already.
    """

    def __init__(self, name: str) -> None:
        # An address without a file: the kernel frees it with the process.
        self._address = b"\0timely_llm/" + hashlib.sha256(name.encode()).hexdigest().encode()
        self._socket: socket.socket | None = None
        self.taken = not self.take()

    def take(self) -> bool:
        """Take the name; return whether no other process has it now."""
        if sys.platform != "linux" or self._socket is not None:
            return True
        held = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            held.bind(self._address)
        except OSError:
            held.close()
            return False
        self._socket = held
        return True

    def release(self) -> None:
        """Give up the name."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None


TOPIC = "~/plan/_claim"
ATTACHED_TOPIC = "~/plan/_attached"
ATTACHED_S = 30.0
"""A server has clients attached for this time after its last request, seconds."""
GIVE_WAY_S = 5.0
"""Two servers of one name wait for this time until one gives way, seconds: by then, each knows all
endpoints of the other one."""
LOOK_S = 0.3
"""Search for other servers before a model is loaded, seconds, if no process of this machine has the
name: a third of the other servers are found in this time, the others during the loading."""
FIND_S = 3.5
"""Least age of a server when it begins to serve, seconds. DDS announces participants every 3 s: by
then, servers that start together have found each other, and only one of them goes on."""
NAME_S = 1.0
"""Longest wait for the name of a node with known endpoints, seconds."""
POLL_S = 0.02
AGAIN_S = 60.0
"""Period of the log line about two servers of one name, seconds."""
PARTICIPANT = 12
"""Bytes of an endpoint's GID that are the same for all endpoints of a process."""


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
        """Whether the name is known: it comes after the endpoints."""
        return "_UNKNOWN_" not in self.node


class Claim:
    """Finds out whether another server has the name of the action.

    Args:
        node: this server's node.
        clock: measures this server's age.
    """

    def __init__(self, node: Node, clock: Clock) -> None:
        self._node = node
        self._clock = clock
        self._born_s = clock.now()
        self._offers = False
        self._logged_s = -AGAIN_S
        self._seen: list[Holder] = []
        self._conflict = ""
        self._conflict_s = math.inf  # since when there is one
        self._served_s = -math.inf
        self._attached: Publisher[KeyValue] | None = None
        self._publisher = node.create_publisher(KeyValue, TOPIC, 1)
        self._process = self._own_process()
        self._local = LocalClaim(f"{_domain()} {self._action}")

    @property
    def look_s(self) -> float:
        """Least age of this server when it loads a model, seconds."""
        return FIND_S if self._local.taken else LOOK_S

    @property
    def age_s(self) -> float:
        """Age of this server, seconds."""
        return self._clock.now() - self._born_s

    def check(self) -> None:
        """Find out whether this server may begin to serve.

        Of two servers that are about to, the one with the smaller GID goes on.

        Raises:
            ConfigurationError: another server of this machine has the name.
            InUseError: another one has it: the graph keeps one that was killed for a while.
        """
        end_s = time.monotonic() + NAME_S
        while holders := self._in_the_way():
            if all(holder.named for holder in holders) or time.monotonic() > end_s:
                kind = InUseError if self._local.take() else ConfigurationError
                raise kind(
                    f"another plan server has the action {self._action} in ROS domain {_domain()}"
                    f" (node {_names(holders)}): stop it, or give this one another name with"
                    " `--ros-args -r __node:=NAME`"
                )
            time.sleep(POLL_S)

    @property
    def taken(self) -> bool:
        """Whether another server serves under this name."""
        return bool(self._serving())

    def check_serving(self) -> None:
        """Find out whether another server has begun to serve; raises as `check`."""
        if self.taken:
            self.check()

    def begun(self) -> None:
        """Record that this server offers the action now."""
        self._offers = True
        self._local.take()  # one that gave way may have had it

    def conflict(self) -> str:
        """Return a sentence if other servers offer the action too; empty: none does.

        Two equal looks at the graph count: nodes become known bit by bit.
        """
        others, seen = self._serving(), self._seen
        self._seen = others
        if others == seen:
            self._conflict = self._sentence(others) if others else ""
        same = bool(others) and others == seen
        self._conflict_s = min(self._conflict_s, self._clock.now()) if same else math.inf
        return self._conflict

    def serves(self, requests: int) -> None:
        """Record how many requests are being served: other servers of this name give way to it."""
        now = self._clock.now()
        if requests:
            self._served_s = now
        if now >= self._served_s + ATTACHED_S:
            if self._attached is not None:
                self._node.destroy_publisher(self._attached)
            self._attached = None
        elif self._attached is None:
            self._attached = self._node.create_publisher(KeyValue, ATTACHED_TOPIC, 1)

    def check_conflict(self) -> None:
        """Find out whether this server gives way to another one that serves too.

        One with requests goes on, else the one with the smallest GID.

        Raises:
            InUseError: this server has no request, and another one goes on.
        """
        if self._attached is not None or self._clock.now() < self._conflict_s + GIVE_WAY_S:
            return
        attached = {holder.process for holder in self._holders(ATTACHED_TOPIC)}
        before = [h for h in self._seen if h.process in attached]
        if not attached:
            before = [h for h in self._seen if b"" < h.process < self._process]
        if before:
            raise InUseError(
                f"{self._sentence(self._seen)}; this one serves no request, and gives way to"
                f" {_names(before)}"
            )

    def _sentence(self, others: Sequence[Holder]) -> str:
        return (
            f"{len(others) + 1} plan servers answer the action {self._action} in ROS domain"
            f" {_domain()}, this one (node {self._node.get_fully_qualified_name()}) and node"
            f" {_names(others)}: stop all but one, or give each a name of its own"
        )

    def is_news(self) -> bool:
        """Return whether a conflict is to be logged again."""
        now = self._clock.now()
        if now < self._logged_s + AGAIN_S:
            return False
        self._logged_s = now
        return True

    @property
    def _action(self) -> str:
        return self._node.resolve_service_name("~/plan")

    def _serving(self) -> list[Holder]:
        """Return the other nodes that offer the action: its services and its status topic."""
        if self._node.count_services(f"{self._action}/_action/send_goal") <= self._offers:
            return []
        found = self._holders(f"{self._action}/_action/status")
        return found or [Holder("that publishes no states of goals", b"")]

    def _in_the_way(self) -> list[Holder]:
        """Return the serving nodes, or else the starting ones that go before this one."""
        return self._serving() or [h for h in self._starting() if h.process < self._process]

    def _starting(self) -> list[Holder]:
        """Return the other nodes that are about to offer it."""
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
        """Return the first bytes of this process's GIDs, read from a topic that only it has."""
        topic = f"{TOPIC}/key_{uuid.uuid4().hex}"
        publisher = self._node.create_publisher(KeyValue, topic, 1)
        infos = self._node.get_publishers_info_by_topic(self._node.resolve_topic_name(topic))
        self._node.destroy_publisher(publisher)
        return bytes(infos[0].endpoint_gid)[:PARTICIPANT]


def _names(holders: Sequence[Holder]) -> str:
    return listed(sorted({echoed(holder.node, 200) for holder in holders}), 4)


def _domain() -> str:
    return os.environ.get("ROS_DOMAIN_ID", "0")
