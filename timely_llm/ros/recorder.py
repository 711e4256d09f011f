"""The executable `recorder`: what is said on a plan server's topics, to a bag."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rclpy.event_handler import SubscriptionEventCallbacks
from rclpy.qos import DurabilityPolicy, QoSPolicyKind, ReliabilityPolicy
from rclpy.subscription import MessageInfo

from timely_llm.core.echo import quoted
from timely_llm.core.errors import ConfigurationError
from timely_llm.processes.children import Interrupts
from timely_llm.ros import qos
from timely_llm.ros.guarded import Guarded
from timely_llm.ros.parameters import Parameter, declare
from timely_llm.ros.rcl_errors import reason
from timely_llm.ros.recorded_topics import TOPICS, Source, offered_qos
from timely_llm.ros.spinning import executor_of, exit_status, ros, spin
from timely_llm.traces.bags import LINE_TOPIC
from timely_llm.traces.recording import Recording

DEPTH = 10_000
"""Messages of a topic that can wait for this process: seconds of a busy server's."""
PAUSE_S = 0.005
"""How long messages may gather; their times are those at which the middleware received them."""
LAST_S = 0.2
"""How long, at the end, what was sent before may still arrive."""

PARAMETERS = (
    Parameter("output", "", "folder of the bag; must not exist"),
    Parameter("server", "plan_server", "name of the plan server's node"),
    Parameter("duration_s", 0.0, "seconds to record; 0: until Ctrl-C", 0.0, 1e9),
)


class Recorder(Guarded):
    """Takes every message as it comes, without looking into it.

    Attributes:
        recording: where they go.
        server: full name of the server that is recorded.
        server_found: whether it is, or was, there.
    """

    def __init__(self) -> None:
        super().__init__("recorder")
        values = declare(self, PARAMETERS)
        if not values["output"]:
            raise ConfigurationError("parameter output must name a folder that does not exist")
        self._end_s = time.monotonic() + (values["duration_s"] or math.inf)
        self._mismatches: list[tuple[Source, QoSPolicyKind]] = []
        try:
            self.server = self.resolve_topic_name(values["server"])
            self._sources = [self._source(name, kind) for name, kind in TOPICS]
        except Exception as error:  # rclpy has a different one for each way to be wrong
            raise ConfigurationError(
                f"{quoted(values['server'])} cannot be the name of a node: {reason(error)}"
            ) from error
        self.server_found = False
        self.recording = Recording(Path(values["output"]))

    @property
    def lost(self) -> int:
        """Messages that were sent and are not in the bag, as far as that can be known."""
        return self.recording.lost + sum(source.lost for source in self._sources)

    def tick(self) -> bool:
        """Do what is due from time to time; return whether the recording goes on."""
        while self._mismatches:
            self._ask_for_less(*self._mismatches.pop())
        if not self.server_found:
            self.server_found = self.count_publishers(f"{self.server}/segments") > 0
        return time.monotonic() < self._end_s and not self.recording.problem

    def _source(self, name: str, kind: type[Any]) -> Source:
        profile = qos.reliable(DEPTH)
        if name == LINE_TOPIC:  # also lines that came before the recorder
            profile.durability = DurabilityPolicy.TRANSIENT_LOCAL
        full = name if name.startswith("/") else f"{self.server}/{name}"
        source = Source(full, kind, profile)
        self._subscribe(source)
        return source

    def _subscribe(self, source: Source) -> None:
        def take(data: bytes, info: MessageInfo) -> None:
            self._take(source, data, info)
            self._take_waiting(source)

        def mismatch(event: Any) -> None:
            self._mismatches.append((source, event.last_policy_kind))

        source.subscription = self.create_subscription(
            source.kind, source.name, take, source.profile, raw=True,
            event_callbacks=SubscriptionEventCallbacks(incompatible_qos=mismatch),
        )  # fmt: skip

    def _ask_for_less(self, source: Source, policy: QoSPolicyKind) -> None:
        """Subscribe anew, so that a publisher which offers less is recorded too."""
        if policy == QoSPolicyKind.RELIABILITY:
            source.profile.reliability = ReliabilityPolicy.BEST_EFFORT
        elif policy == QoSPolicyKind.DURABILITY:
            source.profile.durability = DurabilityPolicy.VOLATILE
        else:
            self.get_logger().warning(f"a publisher of {source.name} cannot be recorded: {policy}")
            return
        self.get_logger().info(f"{source.name} is recorded as its publishers offer it")
        self._take_waiting(source)
        self.destroy_subscription(source.subscription)
        self._subscribe(source)

    def _take_waiting(self, source: Source) -> None:
        """Take all that waits at once: to be woken for each message costs more than to take it."""
        with source.subscription.handle:
            while message := source.subscription.handle.take_message(source.kind, True):
                self._take(source, *message)

    def _take(self, source: Source, data: bytes, info: MessageInfo) -> None:
        if not source.opened:
            source.opened = True
            publishers = self.get_publishers_info_by_topic(source.name)
            offered = [offered_qos(publisher.qos_profile) for publisher in publishers]
            self.recording.open_topic(source.name, source.type, offered)
        source.count(info)
        self.recording.write(source.name, info["received_timestamp"] or time.time_ns(), data)


def run(
    args: list[str] | None, view: Callable[[Recorder], None] = lambda recorder: None
) -> Recorder:
    """Record until the time is over, a signal comes or nothing can be written any more.

    Args:
        args: the command line, with the node's parameters as ROS arguments; None: the process's.
        view: shown the recorder often.

    Returns:
        The recorder, its bag complete.

    Raises:
        ConfigurationError: a parameter is not possible.
        RecordingError: the bag cannot be made, or could not be completed.
    """
    # Signals are noted: none breaks in between taking a message and writing it.
    with ros(args), Interrupts() as interrupts, executor_of() as executor:
        node = Recorder()
        executor.add_node(node)

        def go_on() -> bool:
            view(node)
            time.sleep(PAUSE_S)
            return node.tick() and not interrupts.received

        try:
            spin(executor, go_on)
            spin(executor, timeout_s=LAST_S)
        finally:
            node.recording.close()
        return node


def main(args: list[str] | None = None) -> int:
    """Record until the end; return the exit status."""

    def work() -> None:
        run(args)

    return exit_status("recorder", work)


if __name__ == "__main__":
    sys.exit(main())
