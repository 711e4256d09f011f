"""The node `plan_server`: the serving loop with a ROS face and a life cycle."""

from __future__ import annotations

import contextlib
import logging
import math
import sys
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
from timely_llm.core.echo import sentence
from timely_llm.core.errors import ConfigurationError, EngineLost, TimelyError
from timely_llm.core.request import Result
from timely_llm.ros import observation, qos
from timely_llm.ros.claim import LOOK_S, Claim
from timely_llm.ros.guarded import Guarded
from timely_llm.ros.health import Health
from timely_llm.ros.last_resort import LastResort, leave
from timely_llm.ros.parameters import check_changes, declare, read
from timely_llm.ros.plan_server_setup import PARAMETERS, make_server, slo_classes
from timely_llm.ros.server_interface import ServerInterface
from timely_llm.ros.spinning import POLL_S, executor_of, exit_status, ros, spin, undisturbed
from timely_llm.serving.loop import Loop
from timely_llm.serving.server import Server

log = logging.getLogger(__name__)
SUCCESS, FAILURE = TransitionCallbackReturn.SUCCESS, TransitionCallbackReturn.FAILURE
FAREWELL_S = 2.0
"""How long goals may take to end when the server stops."""
SENDING_S = 0.2
"""How long rclpy then may take to send their results."""
HEALTH_PERIOD_S = 1.0
NAP_S = 0.002
LATER = 2.0
"""So much later than a hang of the engine one of all Python ends the process."""
ENDING_S = 60.0
"""The longest end of a process, seconds."""


class PlanServer(Guarded, LifecycleNode):
    """Serves requests for plans and answers while it is active."""

    def __init__(self) -> None:
        super().__init__("plan_server")
        self._wall = WallClock()
        self._server: Server | None = None
        self._former: Server | None = None
        self._last_resort: LastResort | None = None
        self._starting = False
        self._problem = ""
        self.values: dict[str, Any] = declare(self, PARAMETERS)
        self.add_on_set_parameters_callback(self._on_set)
        self._health = Health(self.get_fully_qualified_name())
        self.interface = ServerInterface(
            self, self._on_end, self.values["publish_steps"],
            self.values["result_timeout_s"], self.values["max_results"],
        )  # fmt: skip
        self._stats = qos.publisher(self, msg.ServerStats, "~/stats", 10)
        self._diagnostics = qos.publisher(self, DiagnosticArray, "/diagnostics", 10)
        self._claim = Claim(self, self._wall)
        self._stats_s = self._health_s = 0.0

    @property
    def state(self) -> str:
        """Where its life cycle stands: unconfigured, inactive, active, finalized."""
        label: str = self._state_machine.current_state[1]
        return label

    def start(self, executor: Executor) -> None:
        """Configure and activate, if that is its job; clients find it when it can serve them.

        Raises:
            ConfigurationError: it cannot be configured, or another server has its name.
        """
        self._look_for_others(executor, LOOK_S)  # before a model is loaded for nothing
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
            f"ready: {policy} policy, {engine} engine, actions 'plan' and 'converse'"
        )

    def tick(self) -> bool:
        """Do what is due from time to time; return whether the node lives on.

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
        if self._server is not None and now >= self._stats_s + self.values["stats_period_s"]:
            self._stats_s = now
            self._observe(self._stats.publish)
        if now >= self._health_s + HEALTH_PERIOD_S:
            self._health_s = now
            self._tell_conflict()
            self._observe(lambda _: None)
            self._publish_health(now)
        return self.state != "finalized"

    def pause_s(self) -> float:
        """Return how long the executor may wait for messages."""
        waits = self.interface.waiting > 0
        if (waits or self.interface.reading) and self.values["executor"] == "events":
            time.sleep(NAP_S)  # it does not wait at all while a coroutine does
        return NAP_S if waits else POLL_S

    def drain(self, timeout_s: float) -> Callable[[], bool]:
        """Finish what is served, for at most `timeout_s`; return who tells whether it goes on."""
        if self._server is None:
            return lambda: False
        drained = self._server.drain(timeout_s)
        return lambda: not drained.done()

    def stop(self) -> None:
        """End all requests and the engine; their clients are told, and who comes later is too."""
        server, self._server = self._server, None
        if self._last_resort is not None:
            self._last_resort.rest()
            self._last_resort = None
        if server is not None:
            self._former = None if server.close() else server

    def _look_for_others(self, executor: Executor, limit_s: float = math.inf) -> None:
        """Wait until the claim is old enough, at most so old; see what the ROS graph tells then.

        Raises:
            ConfigurationError: another server has the name.
        """
        age_s = min(self.values["name_check_s"], limit_s)
        spin(executor, timeout_s=age_s - self._claim.age_s)
        self._claim.check()

    def _offer(self) -> None:
        self.interface.offer()
        self._claim.begun()

    def _tell_conflict(self) -> None:
        conflict = self._claim.conflict()
        self._health.conflict(conflict)
        if conflict and self._claim.is_news():
            self.get_logger().error(conflict)

    # The life cycle.

    def on_configure(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Load the model and register the skill sets."""
        if self._former is not None and self._former.running:
            return self._refuse("the engine of before has not ended yet: try again")
        self._former = None
        try:
            self.values = values = read(self, PARAMETERS)
            self.interface.streams.slo_classes = slo_classes(values)
            self._server = make_server(values, self.interface, self._wall, self.get_logger())
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
        return SUCCESS

    def on_activate(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Accept requests."""
        if self._server is not None:
            self._server.accept(True)
        return SUCCESS

    def on_deactivate(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Refuse new requests from now on; what is in work is finished, within a time."""
        if self._server is not None:
            self._server.drain(self.values["drain_timeout_s"])
        return SUCCESS

    def on_cleanup(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Free the engine; parameters can be set again."""
        self.stop()
        self.interface.serve(None)
        return SUCCESS

    on_shutdown = on_cleanup
    on_error = on_cleanup

    def _refuse(self, problem: str) -> TransitionCallbackReturn:
        self._problem = sentence(problem)
        if not self._starting:
            self.get_logger().error(self._problem)
        return FAILURE

    # What it tells of itself.

    def _on_set(self, changes: list[RosParameter[Any]]) -> SetParametersResult:
        return check_changes(PARAMETERS, changes, self._server is None)

    def _on_end(self, result: Result) -> None:
        self._health.ended(result, self._wall.now())

    def _observe(self, tell: Callable[[msg.ServerStats], None]) -> None:
        """Count in the engine's thread, between two steps."""
        stamp = self.get_clock().now().to_msg()

        def work(loop: Loop) -> None:
            stats = observation.stats(loop, stamp)
            self._health.seen(stats, self._wall.now())
            tell(stats)

        if self._server is not None:
            self._server.post(work)

    def _publish_health(self, now: float) -> None:
        if not self.values["diagnostics"]:
            return
        array = DiagnosticArray(status=[self._health.status(now, self.state)])
        array.header.stamp = self.get_clock().now().to_msg()
        self._diagnostics.publish(array)


def _end(node: PlanServer, executor: Executor) -> None:
    """Finish what is served for a moment, end the rest, and tell everyone; then end the node."""
    with contextlib.suppress(KeyboardInterrupt):  # the user is in a hurry
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

    0: it was asked to end. 1: it cannot serve, now or any more, and has said why.
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
