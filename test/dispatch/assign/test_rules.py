"""Rules that count requests, memory or seconds."""

from __future__ import annotations

from dataclasses import replace

import pytest

from test.dispatch.views import plan, server
from timely_llm.core.time_utility import URGENT
from timely_llm.dispatch.assign.rules import (
    LargestMemory,
    LeastOutstanding,
    MemorySource,
    MostWorth,
    RoundRobin,
    ShortestResponse,
    TwoChoices,
)
from timely_llm.dispatch.contract import Due

BURST = [plan(str(number)) for number in range(6)]


def test_round_robin_goes_on_where_it_was() -> None:
    rule, servers = RoundRobin(), [server("b"), server("c"), server("a")]
    names = [
        name for burst in (BURST[:2], BURST[2:6]) for _, name in rule.assign(0.0, burst, servers)
    ]
    assert names == ["a", "b", "c", "a", "b", "c"]


def test_round_robin_leaves_out_a_server_without_the_skill_set() -> None:
    servers = [server("a"), server("b", skill_sets={"arm": 1}), server("c")]
    assert [name for _, name in RoundRobin().assign(0.0, BURST[:3], servers)] == ["a", "c", "a"]


def test_the_fewest_requests_decide() -> None:
    servers = [server("a", requests=3), server("b", requests=1)]
    assert [name for _, name in LeastOutstanding().assign(0.0, BURST[:4], servers)] == list("bbab")


def test_of_two_random_servers_the_one_with_fewer_requests_is_taken() -> None:
    servers = [server("a", requests=50), server("b"), server("c")]
    names = [name for _ in range(50) for _, name in TwoChoices().assign(0.0, BURST[:2], servers)]
    assert "a" not in names
    drawn = [name for _, name in TwoChoices(3).assign(0.0, BURST, servers)]
    assert set(drawn) == {"b", "c"}


def names(rule: LargestMemory, **tokens: int) -> str:
    """Return the servers of four requests, each of 60 prompt tokens and 40 of its answer."""
    servers = [server(name, kv_tokens=count) for name, count in tokens.items()]
    return "".join(name for _, name in rule.assign(0.0, BURST[:4], servers))


def test_the_largest_remaining_memory_decides() -> None:
    assert names(LargestMemory(utilization=1.0), a=350, b=500) == "bbab"


def test_a_request_that_fits_nowhere_begins_a_new_round() -> None:
    assert names(LargestMemory(utilization=1.0), a=100, b=150) == "baba"
    assert names(LargestMemory(utilization=1.0), a=10, b=20) == "bbbb"


def test_requests_that_ended_give_no_memory_back_as_in_the_paper() -> None:
    rule = LargestMemory(utilization=1.0)
    assert names(rule, a=350, b=500) + names(rule, a=350, b=500) == "bbab" + "abab"


def test_the_memory_that_a_server_reports_decides_if_asked() -> None:
    rule = LargestMemory(MemorySource.FREE)
    servers = [server("a", free_kv_tokens=500), server("b", free_kv_tokens=900)]
    made = [name for _ in range(2) for _, name in rule.assign(0.0, BURST[:2], servers)]
    assert made == ["b"] * 4


def test_a_share_of_the_memory_is_left_free() -> None:
    assert names(LargestMemory(utilization=0.5), a=398, b=210) == "abab"


def test_the_fastest_server_is_taken_until_its_queue_is_longer() -> None:
    servers = [server("slow", 0.03, 0.005), server("fast", 0.02, 0.005)]
    burst = [plan(str(number)) for number in range(8)]
    made = [name for _, name in ShortestResponse().assign(0.0, burst, servers)]
    assert made[:2] == ["fast", "fast"]
    assert "slow" in made and made.count("fast") > made.count("slow")


def test_more_requests_than_rows_take_turns() -> None:
    waits = tuple(Due(-0.5, 10.0, 2.0, 0.5, 60) for _ in range(30))
    few = server("few", max_rows=4, due=waits)
    many = server("many", step_s=0.03, due=waits)
    assert few.step_s(4) == pytest.approx(0.023)
    assert few.step_s(8) == pytest.approx(2.0 * 0.023)
    assert server("all").step_s(20) == pytest.approx(0.039)
    for rule in (ShortestResponse(), MostWorth()):
        assert dict(rule.assign(0.0, BURST[:1], [few, many])) == {"0": "many"}
        roomy = replace(few, max_rows=64)
        assert dict(rule.assign(0.0, BURST[:1], [roomy, many])) == {"0": "few"}


def test_it_does_not_know_what_is_urgent() -> None:
    later = Due(0.1, 8.0, 1.0, 10.0, 500)
    servers = [server("busy", due=(later,) * 3), server("slower", 0.03)]
    assert ShortestResponse().assign(0.0, [plan("r", URGENT)], servers) == [("r", "slower")]
