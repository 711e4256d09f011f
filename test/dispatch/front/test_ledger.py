"""What was sent where."""

from __future__ import annotations

import pytest

from test.dispatch.views import plan, question, server
from timely_llm.dispatch.front.ledger import MISSING_S, Ledger


def ledger() -> Ledger:
    made = Ledger()
    for name in "ab":
        made.heard(server(name, rtt_s=0.002), 10.0)
    return made


def test_a_view_counts_what_its_server_cannot_know_yet() -> None:
    known = ledger()
    known.send(plan("r"), "a", 10.0)
    known.send(question("p"), "a", 10.01)
    a, b = known.views(10.02)
    assert (a.requests, len(a.due), a.rates, b.requests) == (2, 2, (10.0,), 0)
    assert a.free_kv_tokens == 10_000 - 60 - 40 - 100 - 100
    known.heard(server("a", rtt_s=0.002), 10.005)
    assert len(known.views(10.02)[0].due) == 1, "the plan is in the view by now, or done"
    known.heard(server("a", rtt_s=0.002), 10.1)
    assert known.views(10.2)[0].due == () and known.views(10.2)[0].requests == 2
    assert known.views(10.2)[0].age_s == 10.2 - 10.1


def test_what_has_ended_counts_no_more() -> None:
    known = ledger()
    known.send(plan("r"), "a", 10.0)
    known.ended("r")
    known.ended("never")
    assert known.of("r") is None and known.views(10.0)[0].requests == 0


def test_a_request_is_at_one_server_only() -> None:
    known = ledger()
    known.send(plan("r"), "a", 10.0)
    known.send(plan("r"), "b", 10.1)
    assert [one.requests for one in known.views(10.1)] == [0, 1]
    assert known.lost("a") == []


def test_a_moved_request_counts_at_the_server_that_it_was_assigned_to() -> None:
    known = ledger()
    known.send(plan("r"), "a", 10.0)
    known.send(plan("r"), "b", 10.1, known.assigned("r"))
    a, b = known.views(10.1)
    assert (a.requests, b.requests) == (1, 0) and known.assigned("r") == "a"
    assert (len(a.due), len(b.due)) == (0, 1), "it has to be made where it is"
    known.send(plan("r"), "a", 10.2, known.assigned("r"))
    assert [one.requests for one in known.views(10.2)] == [1, 0], "it is back"
    known.send(plan("r"), "b", 10.3, known.assigned("r"))
    known.ended("r")
    assert [one.requests for one in known.views(10.3)] == [0, 0]


@pytest.mark.parametrize("gone", ["lost", "inactive", "lost meanwhile"])
def test_a_moved_request_counts_where_it_is_once_the_other_server_is_gone(gone: str) -> None:
    known = ledger()
    known.send(plan("r"), "a", 10.0)
    assigned = known.assigned("r")
    if gone == "lost meanwhile":
        known.lost("a")
    known.send(plan("r"), "b", 10.1, assigned)
    if gone == "lost":
        assert known.lost("a") == []
        known.heard(server("a"), 10.2)  # it was started again
        assert known.assigned("r") == "b"
    elif gone == "inactive":
        known.heard(server("a", active=False), 10.2)
    assert {one.name: one.requests for one in known.views(10.2)}["b"] == 1
    assert [one.waiting.key for one in known.lost("b")] == ["r"]
    assert all(one.requests == 0 for one in known.views(10.3))


def test_a_lost_server_leaves_its_requests_behind() -> None:
    known = ledger()
    for number in range(3):
        known.send(plan(f"r{number}"), "ab"[number % 2], 10.0)
    known.delivered("r2")
    assert [(one.waiting.key, one.begun) for one in known.lost("a")] == [
        ("r0", False),
        ("r2", True),
    ]
    assert [one.name for one in known.views(11.0)] == ["b"] and known.lost("a") == []
    assert known.of("r0") is None and known.of("r1") is not None


def test_requests_that_their_server_called_unstarted_are_known() -> None:
    known = ledger()
    for name in ("r0", "r1", "r2"):
        known.send(plan(name), "a", 10.0)
    known.delivered("r1")
    known.heard(server("a", unstarted=frozenset({"r0", "r1", "gone"})), 10.1)
    assert [(one.key, name) for one, name in known.unstarted()] == [("r0", "a")]


def test_a_request_that_a_later_view_lacks_is_missing_once_in_a_while() -> None:
    known = ledger()
    known.send(plan("r"), "a", 10.0)

    def missing(made_s: float, *served: str) -> list[str]:
        known.heard(server("a", served=served), made_s)
        return [one.waiting.key for one in known.missing("a", made_s)]

    assert missing(10.0 + MISSING_S) == [] and missing(12.0, "r") == []
    assert missing(12.0) == ["r"] and missing(12.5) == [] and missing(13.5) == ["r"]
    known.heard(server("a"), 20.0)
    assert list(known.missing("a", 20.0)) == [], "it does not say what it serves"


def test_a_server_that_takes_nothing_is_not_shown() -> None:
    known = ledger()
    known.heard(server("a", active=False), 10.1)
    assert [one.name for one in known.views(10.2)] == ["b"] and known.reaches("a")
