"""The node `plan_server`: the serving loop with a ROS interface and a life cycle."""

from __future__ import annotations

import contextlib
import faulthandler
import logging
import math
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from diagnostic_msgs.msg import DiagnosticArray
from rcl_interfaces.msg import SetParametersResult
from rclpy.executors import Executor
from rclpy.lifecycle import LifecycleNode, LifecycleState, TransitionCallbackReturn
from rclpy.parameter import Parameter as RosParameter

from timely_llm import msg
from timely_llm.core.clock import WallClock
from timely_llm.core.errors import ConfigurationError, EngineLost, TimelyError
from timely_llm.core.object_reference import is_reference
from timely_llm.core.request import Result
from timely_llm.core.text import echoed, listed, sentence
from timely_llm.engines.registry import check_packages
from timely_llm.resources import EMBEDDED_MODEL
from timely_llm.ros import qos
from timely_llm.ros.guarded import Guarded
from timely_llm.ros.interface_number import declare_number
from timely_llm.ros.parameters import check_changes, declare, read
from timely_llm.ros.process import POLL_S, executor_of, exit_status, ros, spin, undisturbed
from timely_llm.ros.server import health
from timely_llm.ros.server.claim import Claim
from timely_llm.ros.server.health import Health, StatsFeed
from timely_llm.ros.server.interface import ServerInterface
from timely_llm.ros.server.setup import PARAMETERS, make_server, slo_classes
from timely_llm.ros.simulation import Simulation
from timely_llm.serving.loop import Loop
from timely_llm.serving.server.server import Server

RENEWAL_S = 1.0


class LastResort:
    """Ends the process unless it is renewed in time.

    It also ends a process that was stopped (SIGSTOP) for longer and continues.

    Args:
        limit_s: seconds without a renewal.
    """

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._renewed_s = -RENEWAL_S

    def renew(self) -> None:
        """Start the limit again; cheap enough for every tick."""
        now = time.monotonic()
        if now >= self._renewed_s + RENEWAL_S:
            self._renewed_s = now
            faulthandler.dump_traceback_later(self._limit_s, exit=True)

    def rest(self) -> None:
        """Suspend the limit until the next renewal."""
        self._renewed_s = -RENEWAL_S
        faulthandler.cancel_dump_traceback_later()


def leave(status: int) -> int:
    """Return the exit status; end the process at once if an engine's thread is left.

    Python would wait for the exit functions of libraries, and these may wait for the thread.
    """
    if any(thread.name == "engine" for thread in threading.enumerate()):
        logging.shutdown()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
    return status


log = logging.getLogger(__name__)
SUCCESS, FAILURE = TransitionCallbackReturn.SUCCESS, TransitionCallbackReturn.FAILURE
FAREWELL_S = 2.0
"""Longest wait for the end of goals when the server stops, seconds."""
SENDING_S = 0.2
"""Time for rclpy to send their results, seconds."""
HEALTH_PERIOD_S = 1.0
NAP_S = 0.002
LATER = 2.0
"""Limit of a hang of all Python, as a multiple of the limit of a hang of the engine."""
ENDING_S = 60.0
"""Longest time for the end of a process, seconds."""


class PlanServer(Guarded, LifecycleNode):
    """Serves requests for plans and answers while it is active."""

    def __init__(self) -> None:
        super().__init__("plan_server")
        self._wall = WallClock()
        self._server: Server | None = None
        self._former: Server | None = None
        self._last_resort: LastResort | None = None
        self._starting = self._observing = False
        self._problem = ""
        declare_number(self)
        self.values: dict[str, Any] = declare(self, PARAMETERS)
        self.add_on_set_parameters_callback(self._on_set)
        self._health = Health(self.get_fully_qualified_name())
        self._simulation = Simulation(self)
        self.interface = ServerInterface(
            self, self._on_end, self.values["publish_steps"],
            self.values["result_timeout_s"], self.values["max_results"],
        )  # fmt: skip
        self._stats = qos.publisher(self, msg.ServerStats, "~/stats", 10)
        self._diagnostics = qos.publisher(self, DiagnosticArray, "/diagnostics", 10)
        self._claim = Claim(self, self._wall)
        self._feed = StatsFeed(self._stats.publish, lambda: self.get_clock().now().to_msg())
        self._health_s = 0.0

    @property
    def state(self) -> str:
        """State of the life cycle: unconfigured, inactive, active, finalized."""
        label: str = self._state_machine.current_state[1]
        return label

    def start(self, executor: Executor) -> None:
        """Configure and activate with `autostart`; then let clients find the server.

        Raises:
            ConfigurationError: the server cannot be configured, or another server has its name.
        """
        self._look_for_others(executor, self._claim.look_s)  # before a model is loaded for nothing
        if not self.values["autostart"]:
            self._look_for_others(executor)
            self._offer()
            self.get_logger().info("unconfigured: waits for `ros2 lifecycle set`")
            return
        self._starting = True
        if self.trigger_configure() is not SUCCESS:
            raise ConfigurationError(self._problem)
        self._look_for_others(executor)
        if self.trigger_activate() is not SUCCESS:
            raise ConfigurationError(self._problem)
        self._offer()
        self._starting = False
        engine, policy = self.values["engine"], self.values["policy"]
        self.get_logger().info(
            f"ready: {policy} policy, {engine} engine, actions ~/plan and ~/converse"
        )

    def tick(self) -> bool:
        """Do periodic work; return whether the node goes on.

        Raises:
            EngineLost: the engine has ended.
        """
        now = self._wall.now()
        for server in (self._server, self._former):
            if server is not None and server.problem:
                self._health.lost(server.problem)
                self._publish_health(now)
                raise EngineLost(server.problem)
        if self._last_resort is not None:
            self._last_resort.renew()
        self.interface.notices.flush()
        self._simulation.log_changes(now)
        if self._server is not None:
            self._feed.tick(now, self.values["stats_period_s"], self._observe)
        if now >= self._health_s + HEALTH_PERIOD_S:
            self._health_s = now
            self._log_conflict()
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
        return NAP_S if waits else min(POLL_S, self._feed.wait_s(self._wall.now()))

    def drain(self, timeout_s: float) -> Callable[[], bool]:
        """Finish open requests within `timeout_s`; return a function: whether it goes on."""
        if self._server is None:
            return lambda: False
        drained = self._server.drain(timeout_s)
        return lambda: not drained.done()

    def stop(self) -> None:
        """End all requests and the engine; clients get results, and later requests are refused."""
        server, self._server = self._server, None
        if self._last_resort is not None:
            self._last_resort.rest()
            self._last_resort = None
        if server is not None:
            self._former = None if server.close() else server

    def _look_for_others(self, executor: Executor, limit_s: float = math.inf) -> None:
        """Look for other servers in the ROS graph until the claim is old enough, at most `limit_s`.

        Raises:
            ConfigurationError: another server has the name.
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
        """Load the model and register the skill sets."""
        if self._former is not None and self._former.running:
            return self._refuse("the former engine has not ended yet: try again")
        self._former = None
        try:
            self.values = values = read(self, PARAMETERS)
            self.interface.streams.slo_classes = slo_classes(values)
            check_packages(values["engine"], values["engine_process"])
            if values["engine"] != "simulated":  # loading may take minutes
                self.get_logger().info(f"loading {self._model()} for the engine {values['engine']}")
            self._server = make_server(
                values, self.interface, self._wall, self.get_logger(), self._claim.check_serving,
                self._simulation.clock,
            )  # fmt: skip
        except TimelyError as error:
            return self._refuse(str(error))
        except Exception as error:
            log.debug("the server cannot be configured", exc_info=True)
            return self._refuse(f"cannot be configured: {type(error).__name__}: {error}")
        self._server.accept(False)
        if values["step_timeout_s"]:
            self._last_resort = LastResort(LATER * values["step_timeout_s"])
        self.interface.plans.max_tokens = values["max_tokens"]
        self.interface.streams.max_tokens = values["max_answer_tokens"]
        self.interface.serve(self._server)
        self._health.configured(
            values["engine"], values["max_requests"], values["kv_tokens"], self._wall.now()
        )
        self._feed.restart()
        self._observing = False
        self._log_state("configured", "accepts no requests until it is activated")
        return SUCCESS

    def on_activate(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Accept requests."""
        if self._server is not None:
            self._server.accept(True)
        self._log_state("active", "accepts requests")
        return SUCCESS

    def on_deactivate(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Refuse new requests from now on; open ones are finished within a time limit."""
        if self._server is not None:
            self._server.drain(self.values["drain_timeout_s"])
        limit_s = self.values["drain_timeout_s"]
        self._log_state("inactive", f"refuses new requests, finishes its own within {limit_s:g} s")
        return SUCCESS

    def on_cleanup(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Free the engine; parameters can be set again."""
        return self._free("unconfigured", "the model is freed, parameters can be set again")

    def on_shutdown(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Free the engine; the process then ends."""
        return self._free("finalized", "the process ends")

    def on_error(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Free the engine after an unexpected error in a change of state."""
        return self._free("unconfigured after an error", "configure it again")

    def _free(self, state: str, what: str) -> TransitionCallbackReturn:
        self._log_state(state, what)
        self.stop()
        self.interface.serve(None)
        return SUCCESS

    def _log_state(self, state: str, what: str) -> None:
        """Log a state of the life cycle, with the engine, model and skill sets."""
        values, server = self.values, self._server
        if server is None:
            self.get_logger().info(f"{state}: {what}; there is no model")
            return
        self.get_logger().info(
            f"{state}: {what}; {values['policy']} policy, {values['engine']} engine,"
            f" {self._model()}, skill sets: {listed(server.skill_sets.names)},"
            f" requests being served: {server.serving}"
        )

    def _model(self) -> str:
        if self.values["engine"] == "simulated":
            return "no model"
        if is_reference(self.values["engine"]) and not self.values["model"]:
            return "its own model"
        model = self.values["model"] or EMBEDDED_MODEL.rpartition("/")[2]
        return f"model {echoed(model, 200)}"

    def _refuse(self, problem: str) -> TransitionCallbackReturn:
        self._problem = sentence(problem)
        if not self._starting:
            self.get_logger().error(self._problem)
        return FAILURE

    # Statistics and health.

    def _on_set(self, changes: list[RosParameter[Any]]) -> SetParametersResult:
        return check_changes(PARAMETERS, changes, self._server is None)

    def _on_end(self, result: Result) -> None:
        self._health.ended(result, self._wall.now())

    def _observe(self, take: Callable[[msg.ServerStats], None]) -> None:
        """Make statistics in the engine's thread, between two steps."""
        stamp, server = self.get_clock().now().to_msg(), self._server
        if server is None:
            return

        def work(loop: Loop) -> None:
            stats = health.stats(loop, server.stats, stamp)
            self._health.seen(stats, self._wall.now())
            take(stats)

        server.post(work)

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


def _end(node: PlanServer, executor: Executor) -> None:
    """Finish open requests for a moment, end the others with results, and end the node."""
    with contextlib.suppress(KeyboardInterrupt):  # a second Ctrl-C skips the wait
        limit_s = node.values["shutdown_drain_s"]
        spin(executor, node.drain(limit_s), limit_s + FAREWELL_S)
    with undisturbed():
        node.stop()
        LastResort(ENDING_S).renew()
        spin(executor, node.interface.has_goals, FAREWELL_S)
        spin(executor, timeout_s=SENDING_S)
        executor.remove_node(node)
        node.destroy_node()


def main(args: list[str] | None = None) -> int:
    """Run the node until it is interrupted; return the exit status.

    0: it was asked to end. 1: it cannot serve, and has printed why.
    """

    def work() -> None:
        with ros(args):
            node = PlanServer()
            with executor_of(node.values["executor"]) as executor:
                executor.add_node(node)
                try:
                    node.start(executor)
                    spin(executor, node.tick, poll_s=node.pause_s)
                finally:
                    _end(node, executor)

    return leave(exit_status("plan_server", work))


if __name__ == "__main__":
    sys.exit(main())
