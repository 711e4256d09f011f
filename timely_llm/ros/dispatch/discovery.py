"""Which plan servers there are: the ROS graph says so, and a list may narrow it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from rclpy.node import Node

from timely_llm.core.text import quoted
from timely_llm.dispatch.relay import Relay
from timely_llm.ros.dispatch.delivery_thread import DeliveryThread
from timely_llm.ros.dispatch.server_link import ServerLink

LOAD = "timely_llm/msg/ServerLoad"
LOOK_S = 0.25
"""Period of looks at the graph, seconds."""

TICK_S = 0.02
"""Period of the links' looks at their servers, seconds."""

GONE_S = 30.0
"""A server without a publisher for this time is forgotten, seconds."""

LATE_S = 10.0
"""A server of the list that is not found in this time is named in the log, seconds."""


class Discovery:
    """Makes a link to each server that is found, and ends those of servers that are gone.

    Servers are the nodes that publish a load in the dispatcher's namespace or below it.

    Args:
        node: the dispatcher's node.
        relay: takes the servers.
        deliveries: the thread in which segments and tokens come.
        only: full names of the servers to take; empty: all.
        say: takes a sentence for the log.
    """

    def __init__(
        self,
        node: Node,
        relay: Relay,
        deliveries: DeliveryThread,
        only: Sequence[str],
        say: Callable[[str], None],
    ) -> None:
        self._node = node
        self._relay = relay
        self._deliveries = deliveries
        self._only = frozenset(only)
        self._say = say
        self._me = node.get_fully_qualified_name()
        self._below = node.get_namespace().rstrip("/") + "/"
        self._links: dict[str, ServerLink] = {}
        self._seen_s: dict[str, float] = {}
        self._began_s = time.monotonic()
        self._look_s = self._tick_s = 0.0
        self._missed = not only

    @property
    def links(self) -> Sequence[ServerLink]:
        """The links to all servers that were found."""
        return tuple(self._links.values())

    def tick(self) -> None:
        """Look at the graph if it is time, and let the links look at their servers."""
        now = time.monotonic()
        if now >= self._look_s:
            self._look_s = now + LOOK_S
            self._look(now)
        if now >= self._tick_s:
            self._tick_s = now + TICK_S
            for link in self._links.values():
                link.tick()

    def _look(self, now: float) -> None:
        for topic, types in self._node.get_topic_names_and_types():
            name = topic.removesuffix("/load")
            if LOAD not in types or name == topic or not self._takes(name):
                continue
            if not self._node.count_publishers(topic):
                continue
            self._seen_s[name] = now
            if name not in self._links:
                link = ServerLink(self._node, name, self._relay, self._deliveries, self._say)
                self._links[name] = link
                self._relay.joined(name, link)
        for name in [name for name, seen_s in self._seen_s.items() if now - seen_s > GONE_S]:
            del self._seen_s[name], self._links[name]
            self._relay.left(name)
        if not self._missed and now - self._began_s > LATE_S:
            self._missed = True
            for name in sorted(self._only - self._links.keys()):
                self._say(f"the server {quoted(name)} of the parameter servers is not there yet")

    def _takes(self, name: str) -> bool:
        if self._only:
            return name in self._only
        return name != self._me and name.startswith(self._below)
