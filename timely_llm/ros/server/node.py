"""The node `plan_server`: the serving loop with a ROS interface and a life cycle."""

from __future__ import annotations

import faulthandler
import logging
import os
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future as ConcurrentFuture
from uuid import uuid4

from rclpy.lifecycle import LifecycleState, TransitionCallbackReturn

from timely_llm import msg
from timely_llm.cluster.configured import make_server, read_skill_sets
from timely_llm.cluster.replicas import Replicas
from timely_llm.cluster.setup import NONE_THERE, is_cluster, make_replicas
from timely_llm.core.errors import ConfigurationError, EngineError, EngineLost
from timely_llm.core.object_reference import is_reference
from timely_llm.core.text import echoed
from timely_llm.dispatch.contract import ServerView
from timely_llm.dispatch.load import Load
from timely_llm.dispatch.relay import Relay
from timely_llm.engines.registry import check_packages
from timely_llm.resources import EMBEDDED_MODEL
from timely_llm.ros import qos
from timely_llm.ros.conversions import stamped, stats_message
from timely_llm.ros.process import exit_status
from timely_llm.ros.server import health
from timely_llm.ros.server.load import LoadFeed, load_message
from timely_llm.ros.server.serving_node import NodeServer, ServingNode, run
from timely_llm.ros.server.setup import PARAMETERS
from timely_llm.ros.server.stats import merged
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


LATER = 2.0
"""Limit of a hang of all Python, as a multiple of the limit of a hang of the engine."""
ENDING_S = 60.0
"""Longest time for the end of a process, seconds."""


class PlanServer(ServingNode):
    """Serves requests with one engine."""

    TABLE, FREED = PARAMETERS, "the model is freed"

    def __init__(self) -> None:
        super().__init__()
        self._server: Server | None = None
        self._former: Server | None = None
        self._replicas: Replicas | None = None
        self._last_resort: LastResort | None = None
        self._load = qos.publisher(self, msg.ServerLoad, "~/load", 1)
        self._load_feed = LoadFeed(
            self._load.publish, lambda: self._accepting,
            lambda: self._load.get_subscription_count() > 0, self._wake, self._wall,
        )  # fmt: skip
        self._views: ConcurrentFuture[Load] = ConcurrentFuture()
        self._life = ""

    def tick(self) -> bool:
        """Do periodic work; return whether the node goes on.

        Raises:
            EngineLost: the engine has ended.
        """
        for server in (self._server, self._former):
            if server is not None and server.problem:
                self._health.lost(server.problem)
                self._publish_health(self._wall.now())
                raise EngineLost(server.problem)
        if self._server is not None:
            self._health.journal(self._server.journal_problem())
        if self._last_resort is not None:
            self._last_resort.renew()
        self._beat()
        return super().tick()

    def pause_s(self) -> float:
        """Return the longest wait of the executor for messages, seconds."""
        pause_s = super().pause_s()
        if self._serves is None:
            return pause_s
        pause_s = min(pause_s, self._load_feed.wait_s)
        if self._replicas is not None:
            pause_s = min(pause_s, self._replicas.wake_s - self._wall.now())
        return max(pause_s, 0.0)

    def drain(self, timeout_s: float) -> Callable[[], bool]:
        """Finish open requests within `timeout_s`; return a function: whether it goes on."""
        going_on = super().drain(timeout_s)
        self._load_feed.changed()

        def goes_on() -> bool:
            self._beat()
            return going_on()

        return goes_on

    def stop(self) -> None:
        """End all requests and the engine; clients get results, and later requests are refused."""
        server, self._server, self._serves = self._server, None, None
        if self._last_resort is not None:
            self._last_resort.rest()
            self._last_resort = None
        if server is not None:
            self._former = None if server.close() else server
        if self._replicas is not None:
            self._replicas.relay.close()
            self._replicas.close()
            self._replicas = None
        self._end_help()

    def _beat(self) -> None:
        """Let the replicas and the feed of the load do what is due."""
        if self._replicas is not None:
            self._replicas.tick()
        if self._replicas is not None or self._server is not None:
            self._load_feed.tick(self._view)

    def on_configure(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Load the model and register the skill sets."""
        if self._former is not None and self._former.running:
            return self._refuse(EngineError("the former engine has not ended yet: try again"))
        self._former = None
        return super().on_configure(state)

    def on_activate(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Accept requests."""
        done = super().on_activate(state)
        self._load_feed.changed()
        return done

    def on_deactivate(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Refuse new requests from now on; open ones are finished within a time limit."""
        done = super().on_deactivate(state)
        self._load_feed.changed()
        return done

    def _make(self) -> NodeServer:
        values = self.values
        check_packages(values["engine"], values["engine_process"])
        if values["engine"] != "simulated":  # loading may take minutes
            self.get_logger().info(f"loading {self._model()} for the engine {values['engine']}")
        if is_cluster(values):
            return self._make_replicas()
        self._server = make_server(
            values, read_skill_sets(values), self._sink, self._wall, self.get_logger(),
            self._claim.check_serving, self._simulation.clock,
        )  # fmt: skip
        if values["step_timeout_s"]:
            self._last_resort = LastResort(LATER * values["step_timeout_s"])
        self._health.configured(
            values["engine"], values["max_requests"], values["kv_tokens"], self._wall.now()
        )
        self._begin_life()
        name = self.get_fully_qualified_name()
        self._views = self._server.call(lambda loop: Load(loop, name))
        return self._server

    def _begin_life(self) -> None:
        """Let dispatchers know that this server has none of the earlier requests."""
        self._load_feed.restart()
        self._life = uuid4().hex

    def _make_replicas(self) -> Relay:
        """Return a relay to replicas that serve.

        Raises:
            TimelyError: they cannot be started.
        """
        if self._simulation.clock.simulated:
            raise ConfigurationError(
                "replicas do not follow /clock: set replicas to 1 or use_sim_time to false"
            )
        values = self.values
        if values["recovery_journal"]:
            raise ConfigurationError(
                "a recovery journal is for one server: leave recovery_journal out, since replicas"
                " hand their requests on to each other"
            )
        self._replicas = make_replicas(
            values, self.get_fully_qualified_name(), self._sink, self._wall,
            self._say, self._wake, self._claim.check_serving,
        )  # fmt: skip
        self._health.configured(
            values["engine"], values["replicas"] * values["max_requests"],
            values["replicas"] * values["kv_tokens"], self._wall.now(),
        )  # fmt: skip
        self._begin_life()
        return self._replicas.relay

    def _brief(self) -> str:
        values = self.values
        replicas = f", {values['replicas']} replicas" if self._replicas is not None else ""
        return f"{values['policy']} policy, {values['engine']} engine{replicas}"

    def _replaces_plans(self) -> bool:
        return is_cluster(self.values) or bool(self.values["cloud_url"])

    def _described(self) -> str:
        return f"{self._brief()}, {self._model()}"

    def _model(self) -> str:
        if self.values["engine"] == "simulated":
            return "no model"
        if is_reference(self.values["engine"]) and not self.values["model"]:
            return "its own model"
        model = self.values["model"] or EMBEDDED_MODEL.rpartition("/")[2]
        return f"model {echoed(model, 200)}"

    def _observe(self, take: Callable[[msg.ServerStats], None]) -> None:
        """Make statistics in the engine's thread, between two steps."""
        stamp, server = self.get_clock().now().to_msg(), self._server
        if self._replicas is not None:
            replicas = list(map(stats_message, self._replicas.statistics))
            made = merged(replicas)
            made.stamp = stamp
            self._health.seen(made, self._wall.now())
            self._health.lost("" if self._replicas.relay.servers else NONE_THERE)
            take(made)
        if server is None:
            return

        def work(loop: Loop) -> None:
            stats = health.stats(loop, server.stats, stamp)
            self._health.seen(stats, self._wall.now())
            take(stats)

        server.post(work, must=True)

    def changed(self) -> None:
        """Publish the load soon: a request was accepted, had its first step or ended."""
        self._load_feed.changed()

    @property
    def _accepting(self) -> bool:
        if self._replicas is not None:
            return self._replicas.relay.accepting and bool(self._replicas.relay.servers)
        return self._server is not None and self._server.accepting

    def _view(self, take: Callable[[msg.ServerLoad], None]) -> None:
        """Make the load's message: of the replicas, or in the engine's thread between two steps."""
        views, life = self._views, self._life

        def made(view: ServerView) -> None:
            take(stamped(self, load_message(view, life, self._accepting)))

        if self._replicas is not None:
            made(self._replicas.view(self.get_fully_qualified_name()))
        elif self._server is not None:
            self._server.post(lambda _: made(views.result().view(self._wall.now())), must=True)


def main(args: list[str] | None = None) -> int:
    """Run the node until it is interrupted; return the exit status.

    0: it was asked to end. 78: it cannot serve, nor could it after a restart. 1: it cannot serve,
    and may after a restart. It has printed why.
    """

    def last() -> None:
        LastResort(ENDING_S).renew()

    return leave(exit_status("plan_server", lambda: run(PlanServer, args, last), os.EX_CONFIG))


if __name__ == "__main__":
    sys.exit(main())
