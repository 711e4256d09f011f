"""Rules that count requests."""

from __future__ import annotations

from test.dispatch.views import plan, server
from timely_llm.dispatch.assign.counts import LeastOutstanding, RoundRobin, TwoChoices

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
