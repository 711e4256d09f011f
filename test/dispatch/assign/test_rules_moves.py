"""Requests that have not begun move when that is worth it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from test.dispatch.views import plan, server, some_servers, some_waiting
from test.examples import examples
from timely_llm.core.time_utility import URGENT
from timely_llm.dispatch.assign.rules import moves
from timely_llm.dispatch.contract import Due, ServerView, Waiting

QUEUE = (Due(0.1, 8.0, 2.0, 0.3, 60),) * 12


def test_a_request_leaves_a_long_queue_for_a_server_at_rest() -> None:
    one = plan("r", URGENT)
    servers = [server("a", due=(*QUEUE, one.due(0.0, server()))), server("b")]
    assert moves(0.0, [(one, "a")], servers) == [("r", "b")]


def test_it_stays_where_nothing_is_better() -> None:
    one = plan("r", URGENT)
    mine = one.due(0.0, server())
    assert moves(0.0, [(one, "a")], [server("a", due=(mine,)), server("b")]) == []
    assert moves(0.0, [(one, "a")], [server("a", due=(*QUEUE, mine)), server("b", age_s=9.0)]) == []
    other = server("b", skill_sets={"arm": 5})
    assert moves(0.0, [(one, "a")], [server("a", due=(*QUEUE, mine)), other]) == []


def test_a_queue_is_shared_not_handed_on() -> None:
    burst = [plan(f"r{number}", URGENT) for number in range(12)]
    due = tuple(one.due(0.0, server()) for one in burst)
    made = moves(0.0, [(one, "a") for one in burst], [server("a", due=due), server("b")])
    assert 4 <= len(made) <= 8


@examples(60)
@given(some_waiting(), some_servers(), st.data())
def test_a_request_moves_once_to_another_server_that_has_its_skill_set(
    waiting: list[Waiting], servers: list[ServerView], data: st.DataObject
) -> None:
    names = st.sampled_from([*(one.name for one in servers), "lost"])
    at = {one.key: (one, data.draw(names)) for one in waiting}
    known = {one.name: one for one in servers}
    made = moves(5.0, at.values(), servers)
    assert len({key for key, _ in made}) == len(made)
    for key, name in made:
        one, before = at[key]
        assert name != before and one.can_go_to(known[name])
