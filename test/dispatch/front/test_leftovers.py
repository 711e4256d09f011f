"""What servers should not have."""

from __future__ import annotations

from test.dispatch.views import server
from timely_llm.dispatch.front.ledger import MISSING_S
from timely_llm.dispatch.front.leftovers import LEFT_S, Leftovers


def test_a_server_ends_what_it_has_until_it_says_that_it_has_not() -> None:
    made = Leftovers()
    made.add("a", "r", 5.0)
    assert made.bars("r") and made.bars("r", "a") and not made.bars("r", "b")
    assert made.heard(server("a", served=("r", "x")), 9.0) == ["r"]
    assert made.heard(server("a", served=("x",)), 9.1) == [] and not made.bars("r")


def test_a_view_that_is_too_new_says_nothing() -> None:
    made = Leftovers()
    made.add("a", "r", 5.0)
    made.heard(server("a", served=()), 5.0 + MISSING_S)
    assert made.bars("r", "a"), "the request may be on its way to the server"
    made.heard(server("a", served=()), 5.1 + MISSING_S)
    assert not made.bars("r", "a")


def test_a_server_that_does_not_say_what_it_serves_ends_it_once() -> None:
    made = Leftovers()
    made.add("a", "r", 5.0)
    assert made.heard(server("a"), 5.1) == ["r"] and made.heard(server("a"), 5.2) == []


def test_it_is_forgotten_of_a_server_that_never_returns_and_of_one_that_has_it_rightly() -> None:
    made = Leftovers()
    made.add("a", "r", 0.0)
    made.add("b", "r", LEFT_S + 1.0)
    assert made.bars("r", "b") and not made.bars("r", "a")
    made.drop("b", "r")
    assert not made.bars("r")
