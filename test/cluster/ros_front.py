"""A front with the transport of a dispatcher: plan servers over ROS, each in a process."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import rclpy
from rclpy.context import Context
from rclpy.executors import SingleThreadedExecutor

from test.cluster.front import Recorded
from test.ros_domains import reserved_domain
from timely_llm.core.clock import WallClock
from timely_llm.processes.children import Child, stop
from timely_llm.processes.nodes import SERVER, in_namespace, local_environment, ros_command
from timely_llm.ros.dispatch.delivery_thread import DeliveryThread
from timely_llm.ros.dispatch.server_link import Discovery
from timely_llm.ros.dispatch.setup import PARAMETERS, make_relay

WAIT_S = 0.002


class RosFront(Recorded):
    """Plan servers and a dispatcher; a server that has ended is started again once it is lost."""

    def __init__(self, replicas: int, **given: Any) -> None:
        super().__init__()
        self.names = [f"/s{number}/plan_server" for number in range(1, replicas + 1)]
        self._given = {"engine": "simulated", "name_check_s": 0.0, "stats_period_s": 0.1, **given}
        self._servers: dict[str, Child] = {}
        with ExitStack() as stack:
            self._folder = Path(stack.enter_context(TemporaryDirectory()))
            self._domain = stack.enter_context(reserved_domain())
            stack.callback(lambda: stop(list(self._servers.values())))
            context = Context()
            rclpy.init(context=context, domain_id=self._domain)
            stack.callback(lambda: rclpy.shutdown(context=context))
            node = rclpy.create_node("plan_server", context=context)
            stack.callback(node.destroy_node)
            self._executor = SingleThreadedExecutor(context=context)
            self._executor.add_node(node)
            stack.callback(lambda: self._executor.shutdown(timeout_sec=1))
            deliveries = DeliveryThread(node)
            stack.callback(deliveries.close)
            defaults = {parameter.name: parameter.default for parameter in PARAMETERS}
            self.relay = make_relay(
                defaults, node.get_fully_qualified_name(), self, WallClock(), self.log.append,
                lambda: None,
            )  # fmt: skip
            self._discovery = Discovery(node, self.relay, deliveries, [], self.log.append)
            for name in self.names:
                self._start(name)
            self.until(self.complete)
            self._stack = stack.pop_all()

    @property
    def pids(self) -> Mapping[str, int]:
        return {name: one.pid for name, one in self._servers.items() if one.status is None}

    @property
    def served(self) -> int:
        return sum(one.stats.ended for one in self._discovery.links)

    def tick(self) -> None:
        for name, one in self._servers.items():
            if one.status is not None and name not in self.relay.servers:
                self._start(name)
        self._executor.spin_once(timeout_sec=WAIT_S)
        self._discovery.tick()
        self.relay.tick()

    def close(self) -> None:
        for one in self._servers.values():
            one.send(signal.SIGCONT)
        super().close()
        self._stack.close()

    def _start(self, name: str) -> None:
        namespace = name.split("/")[1]
        command = [*ros_command(SERVER, self._given), *in_namespace(namespace)]
        self._servers[name] = Child(
            name, command, local_environment(self._domain), self._folder / f"{namespace}.log"
        )
