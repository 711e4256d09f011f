"""Of two servers of one name the older one stays."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import rclpy
from diagnostic_msgs.msg import KeyValue
from rclpy.context import Context
from rclpy.node import Node

from timely_llm.core.clock import VirtualClock
from timely_llm.core.errors import ConfigurationError
from timely_llm.ros.claim import Claim


@pytest.fixture
def node() -> Iterator[Node]:
    context = Context()
    rclpy.init(context=context, domain_id=93)
    made = rclpy.create_node("claimant", context=context, namespace="/lab")
    yield made
    made.destroy_node()
    rclpy.shutdown(context=context)


@pytest.fixture
def claim(node: Node) -> Claim:
    clock = VirtualClock(100.0)
    made = Claim(node, clock)
    clock.advance(10.0)
    return made


def hear(claim: Claim, key: str, value: str) -> None:
    claim._on_claim(KeyValue(key=key, value=value))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("0", "9.0"),  # younger
        ("z", "10.1"),  # as old, and its key is greater
        ("0", "no number"),
    ],
)
def test_who_is_younger_changes_nothing(claim: Claim, key: str, value: str) -> None:
    hear(claim, key, value)
    claim.check()


@pytest.mark.parametrize(("key", "value"), [("z", "11.0"), ("0", "9.9")])
def test_who_is_older_has_the_name(claim: Claim, key: str, value: str) -> None:
    hear(claim, key, value)
    with pytest.raises(ConfigurationError, match="another plan server has the action /lab/plan"):
        claim.check()
