"""Servers and clients of different interfaces: one sentence with both numbers."""

from __future__ import annotations

import pytest
from rcl_interfaces.srv import GetParameters, SetParameters
from rclpy.parameter import Parameter
from rclpy.qos import DurabilityPolicy, QoSProfile
from std_msgs.msg import UInt32

from test.system.conftest import Start
from test.system.ros_client import PATIENT, Client, serving
from timely_llm.ros.client.plan import PlanClient, PlanClientError
from timely_llm.ros.client.talk import TalkClient
from timely_llm.ros.interface_number import INTERFACE

WAIT_S = 60.0
OTHER = f"the server /plan_server has interface 7, and this client has interface {INTERFACE}: "
OLD = "the server /plan_server has no interface number: it is one of timely_llm 0.1"


def test_the_number_is_read_without_this_packages_types(start: Start, domain: int) -> None:
    given = PATIENT | {"interface": 9}  # no launch file can make a server claim another one
    with serving(start, Client, domain, **given) as server:
        answer = server.call(GetParameters, "get_parameters", names=["interface"])
        assert answer.values[0].integer_value == INTERFACE
        change = Parameter("interface", value=3).to_parameter_msg()
        refused = server.call(SetParameters, "set_parameters", parameters=[change])
        assert not refused.results[0].successful
        numbers: list[int] = []
        latched = QoSProfile(depth=1, durability=DurabilityPolicy.TRANSIENT_LOCAL)
        server.node.create_subscription(
            UInt32, "/plan_server/interface", lambda message: numbers.append(message.data), latched
        )
        server.until(lambda: bool(numbers))
        assert numbers == [INTERFACE]


@pytest.mark.extended
@pytest.mark.parametrize(("number", "words"), [(7, OTHER), (0, OLD)])
def test_clients_name_both_numbers_and_send_nothing(
    start: Start, domain: int, number: int, words: str
) -> None:
    arguments = [word for pair in PATIENT.items() for word in ("-p", f"{pair[0]}:={pair[1]}")]
    server = start("test/system/other_server.py", str(number), "--ros-args", *arguments)
    with (
        PlanClient("rover", "patient", domain=domain, find_s=WAIT_S) as client,
        TalkClient("ann", domain=domain, find_s=WAIT_S) as talker,
    ):
        for ask in (
            lambda: client.submit("Look."),
            lambda: client.wait_for_server(WAIT_S),
            lambda: client.result_of("x", WAIT_S),
            lambda: talker.converse("Hello?"),
        ):
            with pytest.raises(PlanClientError, match=words):
                ask()
    others = [
        start("robot_fleet", robots=2),
        start("talkers", people=2),
        start("scripts/timely-llm", "ask", "Look.", "--wait", str(WAIT_S)),
    ]
    for other in others:
        assert other.wait(WAIT_S) == 1
        said = " ".join(other.output.split())
        assert words in said
        assert "Traceback" not in said
    server.stop()
    assert "Traceback" not in server.output
    assert "is being served" not in server.output
