"""Requests that a server should not have are ended there."""

from __future__ import annotations

from test.dispatch.views import server
from timely_llm.dispatch.front.ledger import MISSING_S
from timely_llm.dispatch.front.leftovers import LATE_S, LEFT_S, RESULT_S, Leftovers


def test_a_server_ends_what_it_has_until_it_says_that_it_has_not() -> None:
    made = Leftovers()
    made.add("a", "r", 5.0)
    assert made.bars("r") and made.bars("r", "a") and not made.bars("r", "b")
    assert made.heard(server("a", served=("r", "x")), 9.0) == ["r"]
    made.ended("a", "r")
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


def test_a_request_stays_away_until_the_result_of_its_old_run_has_come() -> None:
    made = Leftovers()
    made.add("a", "r", 0.0)
    asked = [made.heard(server("a", served=("r",)), at_s) for at_s in (5.0, 6.5, 5.0 + RESULT_S)]
    assert asked == [["r"], [], []], "a second question would end the new run"
    assert made.heard(server("a", served=("r",)), 10.1) == ["r"], "the first one was lost"
    made.heard(server("a", served=()), 11.0)
    assert made.bars("r", "a"), "its result would be taken for that of the new run"
    made.ended("a", "r")
    made.heard(server("a", served=()), 11.1)
    assert not made.bars("r", "a")
    made.add("a", "r", 12.0)
    assert made.heard(server("a", served=("r",)), 12.1) == ["r"], "this is another run"


def test_a_server_that_was_lost_is_asked_again() -> None:
    made = Leftovers()
    made.add("a", "r", 0.0)
    assert made.heard(server("a", served=("r",)), 5.0) == ["r"]
    made.lost("a")
    assert made.heard(server("a", served=("r",)), 6.0) == ["r"], "it may not have heard it"


def test_a_result_that_does_not_come_is_not_waited_for_for_ever() -> None:
    made = Leftovers()
    made.add("a", "r", 0.0)
    assert made.heard(server("a", served=("r",)), 5.0) == ["r"]
    made.heard(server("a", served=()), 5.1 + RESULT_S)
    assert not made.bars("r", "a")


def test_a_server_that_was_stopped_ends_what_it_takes_late() -> None:
    made = Leftovers()
    made.lost("a")
    made.add("a", "r", 2.0)
    assert made.heard(server("a", served=()), 5.0) == [] and not made.bars("r", "a")
    assert made.heard(server("a", served=("r",)), 7.2) == ["r"] and made.bars("r", "a")
    made.ended("a", "r")
    made.heard(server("a", served=()), 9.0)
    assert not made.bars("r", "a")


def test_what_it_takes_late_and_should_have_stays() -> None:
    made = Leftovers()
    made.lost("a")
    made.add("a", "r", 2.0)
    made.heard(server("a", served=()), 5.0)
    assert made.heard(server("a", served=("r",)), 7.2, lambda key: key == "r") == []
    assert not made.bars("r", "a")


def test_long_after_its_return_nothing_is_late() -> None:
    made = Leftovers()
    made.lost("a")
    made.add("a", "r", 2.0)
    made.heard(server("a", served=()), 5.0)
    assert made.heard(server("a", served=("r",)), 5.1 + LATE_S) == []
