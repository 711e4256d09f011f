"""Largest remaining memory (Huang et al. 2025, Algorithm 2)."""

from __future__ import annotations

from test.dispatch.views import plan, server
from timely_llm.dispatch.assign.memory import LargestMemory, MemorySource

BURST = [plan(str(number)) for number in range(4)]
"""Each takes 60 tokens of its prompt and 40 of its answer."""


def names(rule: LargestMemory, **tokens: int) -> str:
    servers = [server(name, kv_tokens=count) for name, count in tokens.items()]
    return "".join(name for _, name in rule.assign(0.0, BURST, servers))


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
