"""The executable `recorder`: writes all messages of a plan server's topics to a bag.

The time of a message is that of its receipt by the middleware, on the wall clock, also with
`use_sim_time`.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rclpy.duration import Duration
from rclpy.event_handler import SubscriptionEventCallbacks
from rclpy.qos import DurabilityPolicy, QoSPolicyKind, QoSProfile, ReliabilityPolicy
from std_msgs.msg import String

from timely_llm import msg
from timely_llm.core.errors import ConfigurationError
from timely_llm.core.text import quoted
from timely_llm.processes.children import Interrupts
from timely_llm.ros import qos
from timely_llm.ros.guarded import Guarded
from timely_llm.ros.parameters import SERVER, NodeParameter, declare
from timely_llm.ros.process import executor_of, exit_status, reason, ros, spin
from timely_llm.traces.recordings.bags import LINE_TOPIC, BagWriter

if TYPE_CHECKING:
    from rclpy.subscription import MessageInfo
    from rosbags.interfaces import Qos


TOPICS: tuple[tuple[str, type[Any]], ...] = (
    ("requests", msg.PlanRequest),
    ("plan_requests", msg.PlanRequest),
    ("segments", msg.Segment),
    ("execution_reports", msg.ExecutionReport),
    ("results", msg.PlanResult),
    ("streams", msg.StreamRequest),
    ("stream_requests", msg.StreamRequest),
    ("stream_chunks", msg.StreamChunk),
    ("stream_results", msg.StreamResult),
    ("steps", msg.EngineStep),
    ("stats", msg.ServerStats),
    (LINE_TOPIC, String),
)
"""The recorded topics: names below the server's, unless they begin with a slash."""


_ONLY = b""


@dataclass
class Source:
    """One topic and its counts.

    Attributes:
        name: the topic's full name.
        kind: the class of its messages.
        profile: the requested quality of service.
        subscription: the subscription; None: there is none.
        opened: a message has come.
        last: number of the last message of each publisher.
        lost: messages that never arrived, by gaps in these numbers.
        unnumbered: messages of an unknown publisher, so that gaps before them do not show.
    """

    name: str
    kind: type[Any]
    profile: QoSProfile
    subscription: Any = None
    opened: bool = False
    last: dict[bytes, int] = field(default_factory=dict)
    lost: int = 0
    unnumbered: int = 0

    @property
    def type(self) -> str:
        """The ROS name of its type."""
        return f"{self.kind.__module__.split('.')[0]}/msg/{self.kind.__name__}"

    def count(self, info: MessageInfo, publishers: Callable[[], int]) -> None:
        """Count the next message.

        Args:
            info: the middleware's data about the message. Before Kilted it does not name the
                publisher, so gaps show only on a topic with one publisher.
            publishers: returns the present number of publishers of the topic.
        """
        gid, number = info.get("publisher_gid"), info.get("publication_sequence_number")
        if number is None or (gid is None and publishers() != 1):
            self.last.clear()
            self.unnumbered += 1
            return
        publisher = _ONLY if gid is None else bytes(gid["data"])
        self.lost += max(number - self.last.get(publisher, number - 1) - 1, 0)
        self.last[publisher] = number


def offered_qos(profile: QoSProfile) -> Qos:
    """Return a quality of service as bags know it."""
    from rosbags import interfaces

    def time_of(duration: Duration) -> interfaces.QosTime:
        return interfaces.QosTime(*divmod(duration.nanoseconds, 1_000_000_000))

    return interfaces.Qos(
        interfaces.QosHistory(profile.history),
        profile.depth,
        interfaces.QosReliability(profile.reliability),
        interfaces.QosDurability(profile.durability),
        time_of(profile.deadline),
        time_of(profile.lifespan),
        interfaces.QosLiveliness(profile.liveliness),
        time_of(profile.liveliness_lease_duration),
        profile.avoid_ros_namespace_conventions,
    )


DEPTH = 10_000
"""Messages of a topic that can wait for this process: those of some seconds of a busy server."""
PAUSE_S = 0.005
"""Time in which messages gather, seconds; it does not change their recorded times."""
LAST_S = 0.2
"""Wait for the last messages at the end, seconds."""

PARAMETERS = (
    NodeParameter("output", "", "folder of the bag; must not exist"),
    SERVER,
    NodeParameter("duration_s", 0.0, "seconds to record; 0: until Ctrl-C", 0.0, 1e9),
)


class Recorder(Guarded):
    """Records each message as it comes, without reading it.

    Attributes:
        recording: the bag.
        server: full name of the recorded server.
        server_found: whether the server was found.
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
        self.recording = BagWriter(Path(values["output"]))

    @property
    def lost(self) -> int:
        """Messages that were sent and are not in the bag, as far as numbers show."""
        return self.recording.lost + sum(source.lost for source in self._sources)

    @property
    def unnumbered(self) -> int:
        """Messages before which a loss does not show; 0 if messages name their publisher."""
        return sum(source.unnumbered for source in self._sources)

    def tick(self) -> bool:
        """Do periodic work; return whether the recording goes on."""
        while self._mismatches:
            self._ask_for_less(*self._mismatches.pop())
        if not self.server_found:
            self.server_found = self.count_publishers(f"{self.server}/segments") > 0
        return time.monotonic() < self._end_s and not self.recording.problem

    def _source(self, name: str, kind: type[Any]) -> Source:
        profile = qos.reliable(DEPTH)
        if name == LINE_TOPIC:  # for lines that were published before
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
        """Subscribe again, so that a publisher with a lower quality of service is recorded too."""
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
        """Take all waiting messages at once: a wake-up for each would cost more than taking it."""
        with source.subscription.handle:
            while message := source.subscription.handle.take_message(source.kind, True):
                self._take(source, *message)

    def _take(self, source: Source, data: bytes, info: MessageInfo) -> None:
        if not source.opened:
            source.opened = True
            publishers = self.get_publishers_info_by_topic(source.name)
            offered = [offered_qos(publisher.qos_profile) for publisher in publishers]
            self.recording.open_topic(source.name, source.type, offered)
        source.count(info, lambda: self.count_publishers(source.name))
        self.recording.write(source.name, info["received_timestamp"] or time.time_ns(), data)


def run(
    args: list[str] | None, view: Callable[[Recorder], None] = lambda recorder: None
) -> Recorder:
    """Record until the time is over, a signal comes or writing fails.

    Args:
        args: the command line, with the node's parameters as ROS arguments; None: the process's.
        view: called often with the recorder.

    Returns:
        The recorder, its bag complete.

    Raises:
        ConfigurationError: a parameter has a value that is not allowed.
        RecordingError: the bag cannot be made or completed.
    """
    # Signals are only recorded, so that none comes between taking a message and writing it.
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
        recorder = run(args)
        count, path = recorder.recording.written.total(), recorder.recording.folder
        print(f"recorder: wrote {count} messages to {path}, {recorder.lost} lost")

    return exit_status("recorder", work)


if __name__ == "__main__":
    sys.exit(main())
