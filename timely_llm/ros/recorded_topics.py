"""Topics of a plan server as a recorder takes them, and what got lost of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rclpy.duration import Duration
from rclpy.qos import QoSProfile
from rclpy.subscription import MessageInfo
from std_msgs.msg import String

from timely_llm import msg
from timely_llm.traces.bags import LINE_TOPIC

if TYPE_CHECKING:
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
"""What is recorded: names below the server's, unless they begin with a slash."""


@dataclass
class Source:
    """One topic and what is known of it.

    Attributes:
        name: the topic's full name.
        kind: the class of its messages.
        profile: the quality of service that is asked for.
        subscription: the subscription, while there is one.
        opened: a message has come.
        last: number of the last message of each publisher.
        lost: messages that never arrived, as gaps in these numbers tell.
    """

    name: str
    kind: type[Any]
    profile: QoSProfile
    subscription: Any = None
    opened: bool = False
    last: dict[bytes, int] = field(default_factory=dict)
    lost: int = 0

    @property
    def type(self) -> str:
        """The ROS name of its type."""
        return f"{self.kind.__module__.split('.')[0]}/msg/{self.kind.__name__}"

    def count(self, info: MessageInfo) -> None:
        """Take note of the message that came next, if the middleware numbers them."""
        gid, number = info["publisher_gid"], info["publication_sequence_number"]
        if gid is not None and number is not None:
            publisher = gid["data"]
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
