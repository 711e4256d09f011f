"""A node with a server: its name, its life cycle, its interface, its statistics and its end."""

from __future__ import annotations

import contextlib
import logging
import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from diagnostic_msgs.msg import DiagnosticArray
from rcl_interfaces.msg import SetParametersResult
from rclpy.executors import Executor
from rclpy.lifecycle import LifecycleNode, LifecycleState, TransitionCallbackReturn
from rclpy.parameter import Parameter as RosParameter

from timely_llm import msg
from timely_llm.core.clock import WallClock
from timely_llm.core.errors import TimelyError
from timely_llm.core.request import Result
from timely_llm.core.text import listed, sentence
from timely_llm.identity.authenticator import authenticator_of
from timely_llm.processes.heap import settle_heap, unsettle_heap
from timely_llm.ros import qos
from timely_llm.ros.guarded import Guarded
from timely_llm.ros.identity.messages import declare_challenge
from timely_llm.ros.interface_number import (
    declare_number,
    declare_replaces_plans,
    declare_resumes,
)
from timely_llm.ros.parameters import NodeParameter, check_changes, declare, read
from timely_llm.ros.process import POLL_S, executor_of, ros, spin, undisturbed
from timely_llm.ros.server.claim import Claim
from timely_llm.ros.server.health import Health, StatsFeed
from timely_llm.ros.server.help import make_help
from timely_llm.ros.server.interface import ServerInterface
from timely_llm.ros.server.setup import slo_classes
from timely_llm.ros.simulation import Simulation
from timely_llm.serving.server.face import RequestServer
from timely_llm.serving.sink import ServerSink

if TYPE_CHECKING:
    from timely_llm.progressive.server import ProgressiveServer

log = logging.getLogger(__name__)
SUCCESS, FAILURE = TransitionCallbackReturn.SUCCESS, TransitionCallbackReturn.FAILURE
FAREWELL_S = 2.0
"""Longest wait for the end of goals when the server stops, seconds."""
SENDING_S = 0.2
"""Time for rclpy to send their results, seconds."""
HEALTH_PERIOD_S = 1.0
NAP_S = 0.002


class NodeServer(RequestServer, Protocol):
    """What a node with a life cycle needs of its server."""

    def accept(self, accepting: bool) -> None:
        """Accept requests from now on, or refuse them."""
        ...

    def drain(self, timeout_s: float) -> Future[None]:
        """Refuse new requests; the future is done when nothing is served any more."""
        ...

    def close(self) -> bool:
        """End all requests; return whether nothing is left running."""
        ...


class ServingNode(Guarded, LifecycleNode, ABC):
    """Serves requests for plans and answers while it is active.

    Attributes:
        TABLE: its parameters.
        FREED: what the log says when the server is freed.
        values: the parameters' values, by name.
        interface: its topics, actions and services.
    """

    TABLE: ClassVar[tuple[NodeParameter, ...]]
    FREED: ClassVar[str]

    def __init__(self) -> None:
        super().__init__("plan_server")
        self._wall = WallClock()
        self._serves: NodeServer | None = None
        self._help: ProgressiveServer | None = None
        self._starting = self._observing = self._waking = False
        self._problem = TimelyError()
        declare_number(self)
        self.values: dict[str, Any] = declare(self, self.TABLE)
        # A dispatcher has no journal: it asks its servers for what an earlier one has left.
        declare_resumes(self, bool(self.values.get("recovery_journal", "servers")))
        declare_replaces_plans(self, self._replaces_plans())
        self.add_on_set_parameters_callback(self._on_set)
        authenticator = authenticator_of(
            self.values.get("agent_keys", ""), self.values.get("require_auth", False)
        )
        declare_challenge(self, authenticator)
        self._health = Health(self.get_fully_qualified_name())
        self._simulation = Simulation(self)
        self.interface = ServerInterface(
            self, self._on_end, self.values.get("publish_steps", False),
            self.values["result_timeout_s"], self.values["max_results"], self.changed,
            authenticator,
        )  # fmt: skip
        self._stats = qos.publisher(self, msg.ServerStats, "~/stats", 10)
        self._diagnostics = qos.publisher(self, DiagnosticArray, "/diagnostics", 10)
        self._claim = Claim(self, self._wall)
        self._feed = StatsFeed(self._stats.publish, lambda: self.get_clock().now().to_msg())
        self._health_s = 0.0

    @property
    def _sink(self) -> ServerSink:
        """What takes the requests, segments, tokens and results of the server."""
        return self._help or self.interface

    @abstractmethod
    def _make(self) -> NodeServer:
        """Return a new server for the present values; it is not active yet.

        Raises:
            TimelyError: it cannot be made.
        """

    @abstractmethod
    def _brief(self) -> str:
        """Return what the server is, in a few words for the log."""

    def _replaces_plans(self) -> bool:
        """Return whether a plan may get a newer epoch although its robot reported no failure."""
        return True

    def _described(self) -> str:
        """Return what the server is, for the log."""
        return self._brief()

    @abstractmethod
    def _observe(self, take: Callable[[msg.ServerStats], None]) -> None:
        """Make statistics, and pass them to the health and to `take`."""

    def changed(self) -> None:
        """Do nothing; called, from any thread, when a request was accepted, began or ended."""

    def _wake(self) -> None:
        """End the executor's wait, so that `tick` is called; of any thread.

        One task at a time: executors run all tasks before they look for messages.
        """
        if self.executor is not None and not self._waking:
            self._waking = True
            self.executor.create_task(self._woken)

    def _woken(self) -> None:
        self._waking = False

    def _say(self, words: str) -> None:
        self.get_logger().info(sentence(words))

    @property
    def state(self) -> str:
        """State of the life cycle: unconfigured, inactive, active, finalized."""
        label: str = self._state_machine.current_state[1]
        return label

    def start(self, executor: Executor) -> None:
        """Configure and activate with `autostart`; then let clients find the server.

        Raises:
            TimelyError: the server cannot be configured, or another server has its name.
        """
        self._look_for_others(executor, self._claim.look_s)  # before a model is loaded for nothing
        if not self.values["autostart"]:
            self._look_for_others(executor)
            self._offer()
            self.get_logger().info("unconfigured: waits for `ros2 lifecycle set`")
            return
        self._starting = True
        if self.trigger_configure() is not SUCCESS:
            raise self._problem
        self._look_for_others(executor)
        if self.trigger_activate() is not SUCCESS:
            raise self._problem
        self._await_readiness(executor)
        self._offer()
        self._starting = False
        self.get_logger().info(f"ready: {self._brief()}, actions ~/plan and ~/converse")

    def _await_readiness(self, executor: Executor) -> None:
        """Wait until requests can be served, before clients find the server; by default, not."""

    def tick(self) -> bool:
        """Do periodic work; return whether the node goes on.

        Raises:
            TimelyError: it cannot go on.
        """
        now = self._wall.now()
        self.interface.notices.flush()
        self._simulation.log_changes(now)
        if self._help is not None:
            self._help.tick()
        if self._serves is not None:
            self._feed.tick(now, self.values["stats_period_s"], self._observe)
        if now >= self._health_s + HEALTH_PERIOD_S:
            self._health_s = now
            self._claim.serves(0 if self._serves is None else self._serves.serving)
            self._log_conflict()
            self._claim.check_conflict()
            if not self._observing:
                self._observing = True
                self._observe(self._observed)
            self._publish_health(now)
        return self.state != "finalized"

    def pause_s(self) -> float:
        """Return the longest wait of the executor for messages, seconds."""
        waits = self.interface.waiting > 0
        if (waits or self.interface.reading) and self.values["executor"] == "events":
            time.sleep(NAP_S)  # this executor does not wait while a coroutine waits
        if waits:
            return NAP_S
        now = self._wall.now()
        help_s = math.inf if self._help is None else max(self._help.wake_s() - now, 0.0)
        return min(POLL_S, self._feed.wait_s(now), help_s)

    def drain(self, timeout_s: float) -> Callable[[], bool]:
        """Finish open requests within `timeout_s`; return a function: whether it goes on."""
        if self._serves is None:
            return lambda: False
        drained = self._serves.drain(timeout_s)
        return lambda: not drained.done()

    def stop(self) -> None:
        """End all requests; clients get results, and later requests are refused."""
        server, self._serves = self._serves, None
        if server is not None:
            server.close()
        self._end_help()

    def _end_help(self) -> None:
        """Ask no cloud any more."""
        helps, self._help = self._help, None
        if helps is not None:
            helps.close()

    def _look_for_others(self, executor: Executor, limit_s: float = math.inf) -> None:
        """Look for other servers in the ROS graph until the claim is old enough, at most `limit_s`.

        Raises:
            ConfigurationError, InUseError: another server has the name.
        """
        age_s = min(self.values["name_check_s"], limit_s)
        spin(executor, lambda: not self._claim.taken, age_s - self._claim.age_s)
        self._claim.check()

    def _offer(self) -> None:
        self.interface.offer()
        self._claim.begun()

    def _log_conflict(self) -> None:
        conflict = self._claim.conflict()
        self._health.conflict(conflict)
        if conflict and self._claim.is_news():
            self.get_logger().error(conflict)

    # The life cycle.

    def on_configure(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Make the server."""
        try:
            self.values = values = read(self, self.TABLE)
            self.interface.streams.slo_classes = slo_classes(values)
            self._help = make_help(values, self.interface, self._wall, self._wake)
            server = self._make()
        except TimelyError as error:
            self._end_help()
            return self._refuse(error)
        except Exception as error:
            self._end_help()
            log.debug("the server cannot be configured", exc_info=True)
            problem = f"cannot be configured: {type(error).__name__}: {error}"
            return self._refuse(TimelyError(problem))
        self._serves = server
        server.accept(False)
        self.interface.plans.max_tokens = values["max_tokens"]
        self.interface.streams.max_tokens = values["max_answer_tokens"]
        if self._help is not None:
            self._help.attach(server)
        self.interface.serve(self._help or server)
        self._feed.restart()
        self._observing = False
        self._log_state("configured", "accepts no requests until it is activated")
        settle_heap()
        return SUCCESS

    def on_activate(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Accept requests."""
        if self._serves is not None:
            self._serves.accept(True)
        self._log_state("active", "accepts requests")
        return SUCCESS

    def on_deactivate(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Refuse new requests from now on; open ones are finished within a time limit."""
        limit_s = self.values["drain_timeout_s"]
        if self._serves is not None:
            self._serves.drain(limit_s)
        self._log_state("inactive", f"refuses new requests, finishes its own within {limit_s:g} s")
        return SUCCESS

    def on_cleanup(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Free the server; parameters can be set again."""
        return self._free("unconfigured", f"{self.FREED}, parameters can be set again")

    def on_shutdown(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Free the server; the process then ends."""
        return self._free("finalized", "the process ends")

    def _free(self, state: str, what: str) -> TransitionCallbackReturn:
        self._log_state(state, what)
        unsettle_heap()
        self.stop()
        self.interface.serve(None)
        return SUCCESS

    def _log_state(self, state: str, what: str) -> None:
        """Log a state of the life cycle, and what is served with what."""
        server = self._serves
        if server is None:
            self.get_logger().info(f"{state}: {what}; nothing is configured")
            return
        self.get_logger().info(
            f"{state}: {what}; {self._described()}, skill sets: {listed(server.skill_sets.names)},"
            f" requests being served: {server.serving}"
        )

    def _refuse(self, problem: TimelyError) -> TransitionCallbackReturn:
        self._problem = problem
        if not self._starting:
            self.get_logger().error(sentence(problem))
        return FAILURE

    # Statistics and health.

    def _on_set(self, changes: list[RosParameter[Any]]) -> SetParametersResult:
        return check_changes(self.TABLE, changes, self._serves is None)

    def _on_end(self, result: Result) -> None:
        self._health.ended(result, self._wall.now())

    def _observed(self, _: msg.ServerStats) -> None:
        self._observing = False

    def _publish_health(self, now: float) -> None:
        if not self.values["diagnostics"]:
            return
        simulation = self._simulation
        self._health.clock(simulation.problem(now), simulation.described(now))
        array = DiagnosticArray(status=[self._health.status(now, self.state)])
        array.header.stamp = self.get_clock().now().to_msg()
        self._diagnostics.publish(array)


def run(make: Callable[[], ServingNode], args: list[str] | None, last: Callable[[], None]) -> None:
    """Run a node until it is interrupted.

    Args:
        make: makes the node.
        args: of the process.
        last: called when the node has stopped, before the process ends.

    Raises:
        TimelyError: it cannot serve, and why.
    """
    with ros(args):
        node = make()
        with executor_of(node.values["executor"]) as executor:
            executor.add_node(node)
            try:
                node.start(executor)
                spin(executor, node.tick, poll_s=node.pause_s)
            finally:
                _end(node, executor, last)


def _end(node: ServingNode, executor: Executor, last: Callable[[], None]) -> None:
    """Finish open requests for a moment, end the others with results, and end the node."""
    with contextlib.suppress(KeyboardInterrupt):  # a second Ctrl-C skips the wait
        limit_s = node.values["shutdown_drain_s"]
        spin(executor, node.drain(limit_s), limit_s + FAREWELL_S)
    with undisturbed():
        node.stop()
        last()
        spin(executor, node.interface.has_goals, FAREWELL_S)
        spin(executor, timeout_s=SENDING_S)
        executor.remove_node(node)
        node.destroy_node()
