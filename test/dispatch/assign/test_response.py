"""Shortest expected response."""

from __future__ import annotations

from test.dispatch.views import plan, server
from timely_llm.core.time_utility import URGENT
from timely_llm.dispatch.assign.response import ShortestResponse
from timely_llm.dispatch.contract import Due


def test_the_fastest_server_is_taken_until_its_queue_is_longer() -> None:
    servers = [server("slow", 0.03, 0.005), server("fast", 0.02, 0.005)]
    burst = [plan(str(number)) for number in range(8)]
    made = [name for _, name in ShortestResponse().assign(0.0, burst, servers)]
    assert made[:2] == ["fast", "fast"]
    assert "slow" in made and made.count("fast") > made.count("slow")


def test_it_does_not_know_what_is_urgent() -> None:
    later = Due(0.1, 8.0, 1.0, 10.0, 500)
    servers = [server("busy", due=(later,) * 3), server("slower", 0.03)]
    assert ShortestResponse().assign(0.0, [plan("r", URGENT)], servers) == [("r", "slower")]
