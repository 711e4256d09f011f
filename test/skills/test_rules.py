"""Rules that users write are used or refused, and neither takes long."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from timely_llm.core.errors import PlanError
from timely_llm.skills.rules import Budget, Rule

CALL = r"\w+\([^()]*\);?"


def state(pattern: str, text: str) -> tuple[str | None, bool]:
    """Return what a rule matches at the beginning of a text, and whether more may change that."""
    rule, budget = Rule(1, pattern), Budget()
    budget.begin()
    match = rule.match(text, budget)
    return match and match[0], rule.may_go_on(text, budget)


@pytest.mark.parametrize(
    ("pattern", "text", "matched", "open_"),
    [
        (CALL, "go", None, True),
        (CALL, "go(1", None, True),
        (CALL, "go(1)", "go(1)", True),
        (CALL, "go(1);", "go(1);", False),
        (CALL, "go(1)s", "go(1)", False),
        (CALL, "(", None, False),
        ("a(bcd)?", "abc", "a", True),
        ("a(bcd)?", "abx", "a", False),
        ("a(?=b)", "a", None, True),
        ("a(?!b)", "a", "a", True),
        ("(?i)STOP", "sto", None, True),
        (r"(\w)\1;", "aab", None, False),
        ("stop|stop all", "stop", "stop", True),
        ("(?>ab|a)c", "ab", None, True),
        ("a$", "a", "a", False),
    ],
)
def test_a_rule_knows_when_no_text_can_change_its_match(
    pattern: str, text: str, matched: str | None, open_: bool
) -> None:
    assert state(pattern, text) == (matched, open_)


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("(", r"'\(' is no regular expression: missing \)"),
        (r"\L<names>", "is no regular expression"),
        ("(" * 5000, "a rule has 1 to 2000 characters, not 5000"),
        ("(" * 1000 + ")" * 1000, "is no regular expression|matches the empty text"),
        ("", "a rule has 1 to 2000 characters, not 0"),
        ("a?", "matches the empty text: it must need at least a character"),
        ("(?r)abc", "is matched backwards: leave the flag r out"),
        ("a(?R)?", "a rule cannot contain itself"),
    ],
)
def test_what_is_no_rule_is_refused(pattern: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Rule(1, pattern)


@pytest.mark.parametrize(
    "pattern", ["(((a{1,9999}){1,9999}){1,9999})b", "(?:aaaaaaaaaa){e<=9}b", "(a|b|ab|ba)+c"]
)
def test_large_repetitions_end(pattern: str) -> None:
    rule, budget = Rule(1, pattern), Budget(feed_s=0.05, plan_s=0.05)
    budget.begin()
    try:
        rule.may_go_on("ab" * 1000 + "!", budget)
        rule.match("a" * 2000 + "!", budget)
    except PlanError as error:
        assert "rule 1" in str(error)


@settings(deadline=None, max_examples=300)
@given(
    st.text(r"ab(|)*+?{},1[]^$\\.:=!<>PRL&#-wdsGKX \n", max_size=20), st.text("ab(1 ", max_size=10)
)
def test_any_text_is_a_rule_or_refused(pattern: str, text: str) -> None:
    budget = Budget(feed_s=0.5)
    budget.begin()
    try:
        rule = Rule(1, pattern)
    except ValueError as error:
        assert "\n" not in str(error)
        return
    match = rule.match(text, budget)
    assert match is None or match.end() > 0
    rule.may_go_on(text, budget)
