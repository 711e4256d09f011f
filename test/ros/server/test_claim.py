"""Of two servers that start with one name, one goes on; a serving server never gives way."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable, Iterator

import pytest
import rclpy
from action_msgs.msg import GoalStatusArray
from diagnostic_msgs.msg import KeyValue
from rclpy.action import ActionServer
from rclpy.context import Context
from rclpy.node import Node

from timely_llm.action import Plan
from timely_llm.core.clock import VirtualClock
from timely_llm.core.errors import ConfigurationError, InUseError, TimelyError
from timely_llm.ros.server.claim import (
    AGAIN_S,
    ATTACHED_S,
    ATTACHED_TOPIC,
    GIVE_WAY_S,
    Claim,
    LocalClaim,
)

WAIT_S = 30.0
Make = Callable[[str], Node]
_domains = itertools.count(os.getpid())


@pytest.fixture
def make() -> Iterator[Make]:
    """Make nodes as if each were a process: in a context of its own."""
    made: list[Node] = []
    domain = 101 + next(_domains) % 100  # a new one: endpoints of ended tests stay for a while

    def node(name: str) -> Node:
        context = Context()
        rclpy.init(context=context, domain_id=domain)
        made.append(rclpy.create_node(name, context=context, namespace="/lab"))
        return made[-1]

    yield node
    for one in made:
        one.destroy_node()
        rclpy.shutdown(context=one.context)


def until(condition: Callable[[], bool]) -> None:
    end_s = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < end_s
        time.sleep(0.01)


def serve(node: Node) -> None:
    ActionServer(node, Plan, "/lab/server/plan", lambda _: Plan.Result())


def test_a_new_server_finds_the_one_that_serves_and_names_it(make: Make) -> None:
    serve(make("first"))
    claim = Claim(make("server"), VirtualClock())
    until(lambda: bool(claim._serving()))
    with pytest.raises(
        TimelyError, match=r"has the action /lab/server/plan .* \(node /lab/first\)"
    ):
        claim.check()


def test_a_restart_may_help_unless_the_other_server_is_one_of_this_machine(make: Make) -> None:
    node = make("first")
    ActionServer(node, Plan, "/lab/single/plan", lambda _: Plan.Result())
    claim = Claim(make("single"), VirtualClock())
    until(lambda: bool(claim._serving()))
    with pytest.raises(InUseError, match="node /lab/first"):
        claim.check()
    claim._local.release()
    other = LocalClaim(f"{os.environ.get('ROS_DOMAIN_ID', '0')} /lab/single/plan")
    with pytest.raises(ConfigurationError, match="node /lab/first"):
        claim.check()
    other.release()


def test_of_two_that_start_together_exactly_one_goes_on(make: Make) -> None:
    claims = [Claim(make("server"), VirtualClock()) for _ in range(3)]
    until(lambda: all(len(claim._starting()) == 2 for claim in claims))
    goes_on, *others = sorted(claims, key=lambda claim: claim._process)
    goes_on.check()
    for claim in others:
        with pytest.raises(TimelyError, match="node /lab/server"):
            claim.check()


def test_a_serving_server_never_gives_way(make: Make) -> None:
    node, clock = make("server"), VirtualClock()
    claim = Claim(node, clock)
    claim.check()
    serve(node)
    claim.begun()
    assert claim.conflict() == ""
    other = make("other")
    serve(other)
    until(lambda: "/lab/other" in claim.conflict())
    assert claim.conflict() == (
        "2 plan servers answer the action /lab/server/plan in ROS domain"
        f" {os.environ.get('ROS_DOMAIN_ID', '0')}, this one (node /lab/server) and node"
        " /lab/other: stop all but one, or give each a name of its own"
    )
    assert claim.is_news()
    assert not claim.is_news(), "said once"
    clock.advance(AGAIN_S)
    assert claim.is_news()


def test_of_two_that_serve_one_without_requests_gives_way(make: Make) -> None:
    clock = VirtualClock()
    claims = [Claim(make("server"), clock) for _ in range(2)]
    for claim in claims:
        serve(claim._node)
        claim.begun()

    def pass_time() -> None:
        """Let both see each other for long enough."""
        until(lambda: all(claim.conflict() for claim in claims))
        clock.advance(GIVE_WAY_S)

    first, second = sorted(claims, key=lambda claim: claim._process)
    until(lambda: all(claim.conflict() for claim in claims))
    second.check_conflict()  # not yet
    pass_time()
    first.check_conflict()
    with pytest.raises(InUseError, match="serves no request, and gives way to"):
        second.check_conflict()
    second.serves(1)
    until(lambda: bool(first._holders(ATTACHED_TOPIC)))
    second.check_conflict()
    with pytest.raises(InUseError, match="serves no request, and gives way to"):
        first.check_conflict()
    first.serves(1)
    pass_time()
    for claim in claims:
        claim.check_conflict()
        assert claim.conflict(), "both go on and say so"
    clock.advance(ATTACHED_S)
    for claim in claims:
        claim.serves(0)
    until(lambda: not second._holders(ATTACHED_TOPIC))
    pass_time()
    with pytest.raises(InUseError):
        second.check_conflict()


@pytest.mark.parametrize("value", ["1e9", "inf", "nan", "-1", "x" * 1_000_000, ""])
def test_messages_on_the_topic_change_nothing(make: Make, value: str) -> None:
    claim = Claim(make("server"), VirtualClock())
    faker = make("zzz")
    publisher = faker.create_publisher(KeyValue, "/lab/server/plan/_claim", 10)
    until(lambda: bool(claim._starting()))
    for key in ("", "0", "f" * 32):
        publisher.publish(KeyValue(key=key, value=value))
    assert claim._node.count_subscribers("/lab/server/plan/_claim") == 0, "the topic has no reader"
    assert claim.conflict() == ""


def test_states_of_goals_alone_make_no_server(make: Make) -> None:
    """A bag that is played back, for example."""
    claim = Claim(make("server"), VirtualClock())
    make("player").create_publisher(GoalStatusArray, "/lab/server/plan/_action/status", 10)
    until(lambda: bool(claim._holders("/lab/server/plan/_action/status")))
    claim.check()
