"""A node of simulated agents, robots or people, of one plan server."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol, TypeVar

from rclpy.executors import Executor

from timely_llm.core.events.log import EventLog, EventLogs, FileEventLog, NullEventLog
from timely_llm.core.request import RequestMode
from timely_llm.ros.client.server_watch import ServerWatch
from timely_llm.ros.guarded import Guarded
from timely_llm.ros.parameters import NodeParameter, declare
from timely_llm.ros.process import executor_of, exit_status, ros, spin, undisturbed

DRAIN_S = 15.0
"""Longest wait for open requests after the last one was sent, seconds."""
ALIVE_PERIOD_S = 1.0
"""Period of an agent's signs of life, seconds."""
SEED = NodeParameter("seed", 0, "seed of everything random", 0, 2**31 - 1)
MODE = NodeParameter(
    "mode", "direct", "author of plans and answers: the server alone, a cloud and the server, or"
    " as the server chooses", choices=tuple(mode.name.lower() for mode in RequestMode),
)  # fmt: skip
LOG = NodeParameter("log", "", "write what happens to this file as JSON lines; empty: do not")
SERVER_TIMEOUT = NodeParameter(
    "server_timeout_s", 60.0, "seconds to wait for the plan server", 0.1, 3600.0
)


class Agent(Protocol):
    """A robot or a person."""

    @property
    def request_id(self) -> str:
        """Id of the open request, the agent's name with a number; empty: there is none."""
        ...

    def lose(self, reason: str) -> None:
        """End the open request: its server is gone, or has forgotten it."""
        ...


AnyAgent = TypeVar("AnyAgent", bound=Agent)


def waiting_for(request_id: str, agents: Mapping[str, AnyAgent]) -> AnyAgent | None:
    """Return the agent with this open request, from all agents by name; None: there is none."""
    agent = agents.get(request_id.rpartition("-")[0])
    return agent if agent is not None and agent.request_id == request_id else None


class AgentsNode(Guarded, ABC):
    """Lets agents send requests for a while, and ends when these have ended.

    Args:
        name: name of the node.
        parameters: table of its parameters; `LOG` is one of them.
        collector: takes all events, beside the file of the parameter `log`.

    Attributes:
        values: values of the parameters, by name.
        event_log: takes all events.
    """

    def __init__(
        self, name: str, parameters: tuple[NodeParameter, ...], collector: EventLog
    ) -> None:
        super().__init__(name)
        self.values: dict[str, Any] = declare(self, parameters)
        path = self.values["log"]
        log: EventLog = FileEventLog(path) if path else NullEventLog()
        self.event_log = EventLogs(log, collector)

    @abstractmethod
    def begin(self, executor: Executor) -> None:
        """Wait for the server, then let the agents begin.

        Raises:
            ConfigurationError: the server is not there in time, or has another interface.
        """

    @abstractmethod
    def tick(self) -> bool:
        """Do all due work; return whether there is more to do."""

    @abstractmethod
    def stop(self, executor: Executor) -> None:
        """Cancel all open requests, and wait until the cancellations have reached the server."""

    def pause_s(self) -> float:
        """Return the longest wait for messages, seconds."""
        return 0.0

    def _check_server(
        self, watch: ServerWatch, agents: Iterable[Agent], lost: str, there: Callable[[], bool]
    ) -> None:
        """End the requests of a lost server, and look for the next server.

        Args:
            watch: watches the server.
            agents: the robots or people.
            lost: why the server is lost, in one sentence; empty: it is not.
            there: returns whether all that the agents use of the server is found.

        Raises:
            ConfigurationError: the server has another interface.
        """
        if lost:
            self.get_logger().error(f"{lost}: waiting for the next server")
            for agent in agents:
                agent.lose(lost)
        watch.find(there)


def run(
    name: str,
    make: Callable[[EventLog], AgentsNode],
    args: list[str] | None,
    collector: EventLog | None,
) -> int:
    """Run a node of agents until it has finished or is interrupted; return the exit status."""

    def work() -> None:
        with ros(args):
            node = make(collector or NullEventLog())
            with executor_of(node.values.get("executor", "single")) as executor:
                executor.add_node(node)
                try:
                    node.begin(executor)
                    spin(executor, node.tick, poll_s=node.pause_s)
                finally:
                    with undisturbed():
                        node.stop(executor)

    return exit_status(name, work)
