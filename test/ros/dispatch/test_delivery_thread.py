"""Deliveries are taken in a thread of their own, whatever the node's executor does."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

import pytest
import rclpy
from rclpy.context import Context
from rclpy.node import Node

from timely_llm import msg
from timely_llm.ros import qos
from timely_llm.ros.dispatch.delivery_thread import DeliveryThread

WAIT_S = 30.0
TOPIC = "/s1/plan_server/segments"


@pytest.fixture
def node() -> Iterator[Node]:
    context = Context()
    rclpy.init(context=context, domain_id=201)
    made = rclpy.create_node("plan_server", context=context, namespace="/lab")
    yield made
    made.destroy_node()
    rclpy.shutdown(context=context)


def until(condition: Callable[[], bool], do: Callable[[], object] = lambda: None) -> None:
    end_s = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < end_s
        do()
        time.sleep(0.01)


def test_messages_come_in_order_while_nothing_spins_the_node(node: Node) -> None:
    came: list[str] = []
    threads: set[str] = set()

    def take(message: msg.Segment) -> None:
        came.append(message.text)
        threads.add(threading.current_thread().name)
        if message.text == "1":
            raise ValueError("a message that cannot be taken")

    deliveries = DeliveryThread(node)
    end = deliveries.listen(msg.Segment, TOPIC, take, qos.QUEUE)
    publisher = qos.publisher(node, msg.Segment, TOPIC)
    until(lambda: publisher.get_subscription_count() == 1)
    for place in range(20):
        publisher.publish(msg.Segment(text=str(place)))
    until(lambda: len(came) == 20)
    assert came == list(map(str, range(20)))
    assert threads == {"deliveries"}
    end()
    until(lambda: publisher.get_subscription_count() == 0)
    deliveries.close()
    assert not any(one.name == "deliveries" for one in threading.enumerate())


def test_a_subscription_may_begin_and_end_while_others_are_heard(node: Node) -> None:
    came: list[str] = []
    deliveries = DeliveryThread(node)
    topics = [f"/s{number}/plan_server/segments" for number in range(3)]
    publishers = [qos.publisher(node, msg.Segment, topic) for topic in topics]
    ends: list[Callable[[], object]] = []

    def take(message: msg.Segment) -> None:
        came.append(message.text)

    def heard(*numbers: int) -> None:
        came.clear()
        for number, publisher in enumerate(publishers):
            publisher.publish(msg.Segment(text=str(number)))
        until(lambda: sorted(came) == list(map(str, numbers)))

    for number, topic in enumerate(topics):
        ends.append(deliveries.listen(msg.Segment, topic, take, qos.QUEUE))
        until(lambda: sum(one.get_subscription_count() for one in publishers) == len(ends))
        heard(*range(number + 1))
    ends[1]()
    until(lambda: publishers[1].get_subscription_count() == 0)
    heard(0, 2)
    deliveries.close()


@pytest.mark.parametrize("closed_first", [True, False])
def test_ros_may_end_before_the_thread_and_after_it(closed_first: bool) -> None:
    context = Context()
    rclpy.init(context=context, domain_id=201)
    made = rclpy.create_node("plan_server", context=context, namespace="/lab")
    deliveries = DeliveryThread(made)
    deliveries.listen(msg.Segment, TOPIC, lambda _: None, qos.QUEUE)
    if closed_first:
        deliveries.close()
    rclpy.shutdown(context=context)
    until(lambda: not any(one.name == "deliveries" for one in threading.enumerate()))
    if not closed_first:
        deliveries.close()
    made.destroy_node()
