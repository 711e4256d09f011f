"""The number of the interface: the version of the messages, services and actions.

ROS matches topics and services by the names of their types. A client of an older release would read
a newer server's bytes wrongly, or not at all, without an error.
"""

from __future__ import annotations

from rcl_interfaces.msg import ParameterDescriptor
from rclpy.duration import Duration
from rclpy.node import Node
from rclpy.publisher import Publisher
from rclpy.qos import DurabilityPolicy, LivelinessPolicy, QoSProfile, ReliabilityPolicy
from std_msgs.msg import UInt32

INTERFACE = 2
"""Each release that changes a definition raises it."""
DIGESTS = {
    1: "8bc4f91f8427b271",
    2: "31d879922e954466",
}
"""Digest of the definitions of each number, as in `test/ros/test_interface_number.py`."""
PARAMETER = "interface"
RESUMES = "resumes"
"""Parameter: open requests go on at the server that takes the place of one that was killed."""
REPLACES_PLANS = "replaces_plans"
"""Parameter: a plan may get a newer epoch although its robot reported no failure."""
TOPIC = "~/interface"
ANNOUNCED_S = 1.0
"""Longest time between two signs of a server's liveliness, which a thread of DDS sends, seconds."""
SILENCE_S = 2.0
"""A server without such a sign for this time is dead for its clients, seconds."""


def lively(lease_s: float) -> QoSProfile:
    """Return the profile of the topic of the number; its writer also shows liveliness.

    Args:
        lease_s: longest time between two signs of a writer, or a reader's wait for one, seconds.
    """
    return QoSProfile(
        depth=1,
        reliability=ReliabilityPolicy.RELIABLE,
        durability=DurabilityPolicy.TRANSIENT_LOCAL,
        liveliness=LivelinessPolicy.AUTOMATIC,
        liveliness_lease_duration=Duration(nanoseconds=round(lease_s * 1e9)),
    )


def declare_number(node: Node) -> None:
    """Declare the number as a parameter that no launch file can override."""
    what = "number of the interface: its messages, services and actions"
    descriptor = ParameterDescriptor(description=what, read_only=True)
    node.declare_parameter(PARAMETER, INTERFACE, descriptor, ignore_override=True)


def declare_resumes(node: Node, resumes: bool) -> None:
    """Declare as a parameter whether requests go on after the end of this process."""
    what = "open requests go on at the process that takes the place of this one when it is killed"
    descriptor = ParameterDescriptor(description=what, read_only=True)
    node.declare_parameter(RESUMES, resumes, descriptor, ignore_override=True)


def declare_replaces_plans(node: Node, replaces: bool) -> None:
    """Declare as a parameter whether plans get newer epochs without a failure."""
    what = "a plan may get a newer epoch although its robot reported no failure"
    descriptor = ParameterDescriptor(description=what, read_only=True)
    node.declare_parameter(REPLACES_PLANS, replaces, descriptor, ignore_override=True)


def publish_number(node: Node) -> Publisher[UInt32]:
    """Publish the number for present and later readers; the publisher shows liveliness."""
    publisher = node.create_publisher(UInt32, TOPIC, lively(ANNOUNCED_S))
    publisher.publish(UInt32(data=INTERFACE))
    return publisher


def problem_of(server: str, number: int | None) -> str:
    """Return why a client of this package cannot talk to a server; empty: it can.

    Args:
        server: full name of its node.
        number: the server's; None: it has none.
    """
    if number == INTERFACE:
        return ""
    has = f"has interface {number}"
    if number is None:
        has = "has no interface number: it is one of timely_llm 0.1 (interface 1), or none"
    return (
        f"the server {server} {has}, and this client has interface {INTERFACE}: install the same"
        " release of timely_llm on both machines"
    )
