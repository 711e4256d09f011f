"""The dispatcher: a node with the interface of a plan server, with plan servers behind it."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Callable

from rclpy.executors import Executor

from timely_llm import msg
from timely_llm.core.errors import ConfigurationError
from timely_llm.core.text import count_of, quoted
from timely_llm.dispatch.relay import LONGEST_READING_S, Relay
from timely_llm.dispatch.settings import NO_SERVER
from timely_llm.ros.dispatch.delivery_thread import DeliveryThread
from timely_llm.ros.dispatch.server_link import Discovery
from timely_llm.ros.dispatch.setup import PARAMETERS, make_relay
from timely_llm.ros.process import exit_status, in_real_time, reason, spin
from timely_llm.ros.server import stats
from timely_llm.ros.server.serving_node import ServingNode, run

FIRST_SERVER_S = 5.0
"""Longest wait for a server before clients find the dispatcher, seconds."""

JOINING_S = LONGEST_READING_S + 1.0
"""Longest further wait for a server that was found: its skill sets are read, seconds."""

SWITCH_S = 0.0002
"""Longest time for which one thread runs while another waits, seconds: segments are in a hurry."""


class DispatchNode(ServingNode):
    """Serves requests with all plan servers of its namespace and below."""

    TABLE, FREED = PARAMETERS, "the servers are forgotten"

    def __init__(self) -> None:
        super().__init__()
        if priority := self.values["realtime_priority"]:
            refused = in_real_time(priority)
            if refused:
                self._say(refused)
        self._deliveries = DeliveryThread(self)
        self._relay: Relay | None = None
        self._discovery: Discovery | None = None

    def _await_readiness(self, executor: Executor) -> None:
        """Wait for a server and its skill sets: clients are not refused after a restart."""

        def waits() -> bool:
            self._relay_tick()
            relay = self._relay
            return relay is not None and not relay.servers

        spin(executor, waits, FIRST_SERVER_S, self.pause_s)
        if self._discovery is not None and self._discovery.links:
            spin(executor, waits, JOINING_S, self.pause_s)

    def tick(self) -> bool:
        """Do periodic work; return whether the node goes on."""
        self._relay_tick()
        return super().tick()

    def pause_s(self) -> float:
        """Return the longest wait of the executor for messages, seconds."""
        wake_s = self._relay.wake_s() if self._relay is not None else math.inf
        return max(min(super().pause_s(), wake_s - self._wall.now()), 0.0)

    def drain(self, timeout_s: float) -> Callable[[], bool]:
        """Finish open requests within `timeout_s`; return a function: whether it goes on."""
        going_on = super().drain(timeout_s)

        def goes_on() -> bool:
            self._relay_tick()
            return going_on()

        return goes_on

    def stop(self) -> None:
        """End all requests here and at the servers, and forget the servers."""
        super().stop()
        self._relay = self._discovery = None

    def destroy_node(self) -> None:
        """End the thread of deliveries, and free the node.

        rclpy of Kilted also frees a node of which the constructor has failed.
        """
        if hasattr(self, "_deliveries"):
            self._deliveries.close()
        super().destroy_node()

    def _relay_tick(self) -> None:
        if self._relay is not None and self._discovery is not None:
            self._discovery.tick()
            self._relay.tick()

    def _make(self) -> Relay:
        values = self.values
        relay = make_relay(
            values, self.get_fully_qualified_name(), self.interface, self._wall, self._say,
            self._wake,
        )  # fmt: skip
        only = [self._full_name(name) for name in values["servers"] if name]
        self._discovery = Discovery(self, relay, self._deliveries, only, self._say)
        self._relay = relay
        self._health.configured(
            f"dispatcher {values['dispatcher']}", values["max_requests"], 1, self._wall.now()
        )
        return relay

    def _full_name(self, server: str) -> str:
        """Return the full name of a server's node; a relative one is of this node's namespace.

        Raises:
            ConfigurationError: no node can have it.
        """
        try:
            return self.resolve_service_name(server)
        except RuntimeError as error:
            raise ConfigurationError(
                f"{quoted(server)} of the parameter servers cannot be the name of a node:"
                f" {reason(error)}"
            ) from error

    def _brief(self) -> str:
        servers = len(self._relay.servers) if self._relay is not None else 0
        return f"{self.values['dispatcher']} dispatcher, {count_of(servers, 'server')} so far"

    def _observe(self, take: Callable[[msg.ServerStats], None]) -> None:
        """Sum up the servers' statistics."""
        relay, discovery = self._relay, self._discovery
        if relay is None or discovery is None:
            return
        there = relay.servers
        made = stats.merged([one.stats for one in discovery.links if one.name in there])
        made.stamp = self.get_clock().now().to_msg()
        self._health.seen(made, self._wall.now())
        self._health.lost("" if there else NO_SERVER)
        take(made)


def main(args: list[str] | None = None) -> int:
    """Run the node until it is interrupted; return the exit status.

    0: it was asked to end. 78: it cannot serve, nor could it after a restart. 1: it cannot serve,
    and may after a restart. It has printed why.
    """
    sys.setswitchinterval(SWITCH_S)
    return exit_status("dispatcher", lambda: run(DispatchNode, args, lambda: None), os.EX_CONFIG)


if __name__ == "__main__":
    sys.exit(main())
