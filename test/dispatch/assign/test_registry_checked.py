"""Rules of users' own, which may do anything."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import pytest

from test.dispatch.views import plan, server
from timely_llm.dispatch.assign.registry import CheckedRule, make_dispatcher
from timely_llm.dispatch.contract import Assignment, ServerView, Waiting


class Wrong:
    """Answers as it was made."""

    gathers = False

    def __init__(self, *answers: object) -> None:
        self.answers = answers

    def assign(
        self, now: float, waiting: Sequence[Waiting], servers: Sequence[ServerView]
    ) -> Sequence[Assignment]:
        if not self.answers:
            raise ZeroDivisionError("no servers")
        return self.answers  # type: ignore[return-value]


def assigned(rule: Wrong) -> Sequence[Assignment]:
    rule_of_mine = CheckedRule(rule, "mine:Rule", logging.getLogger(__name__).warning)
    return rule_of_mine.assign(0.0, [plan("r")], [server("a")])


def test_what_is_possible_counts() -> None:
    assert assigned(Wrong(("r", "a"))) == [Assignment("r", "a")]


@pytest.mark.parametrize("answer", [("r", "z"), ("other", "a")])
def test_what_is_impossible_does_not_count(
    answer: tuple[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        assert assigned(Wrong(answer, ("r", "a"), ("r", "a"))) == [Assignment("r", "a")]
    assert len(caplog.records) == 1 and "mine:Rule" in caplog.text


@pytest.mark.parametrize("answers", [(), (None,), (("r",),)])
def test_a_rule_that_fails_gives_way_to_the_default(
    answers: tuple[object, ...], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        assert assigned(Wrong(*answers)) == [Assignment("r", "a")]
    assert "what it does not assign, the default rule assigns" in caplog.text


class Idle(Wrong):
    """Assigns nothing."""

    def assign(
        self, now: float, waiting: Sequence[Waiting], servers: Sequence[ServerView]
    ) -> Sequence[Assignment]:
        return []


def test_what_a_rule_leaves_out_is_assigned_by_the_default(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING):
        assert assigned(Idle()) == [Assignment("r", "a")]
    assert "assigned no server to 'r'" in caplog.text


def test_a_request_that_no_server_can_take_may_be_left_out() -> None:
    said: list[str] = []
    rule = CheckedRule(Idle(), "mine:Rule", said.append)
    assert not rule.assign(0.0, [plan("r", skill_set="boat")], [server("a")])
    assert not said


def test_only_rules_of_users_are_checked() -> None:
    assert not isinstance(make_dispatcher("most-worth"), CheckedRule)
    rule = make_dispatcher("timely_llm.dispatch.assign.rules:RoundRobin")
    assert isinstance(rule, CheckedRule)
