"""Rules that users write are used or refused, and neither takes long."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from test.examples import examples
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
        ("(", r"'\(' is no regular expression: a \) is missing at"),
        (r"a\L<names>", r"a rule cannot have \\L, a named list"),
        (
            "(?P<x>(?&x)?a);",
            r"a rule cannot have '\(\?&x\)\?a\);': after \(\? allowed are \(\?:\.\.\.\)",
        ),
        ("(a)(?1)", r"a rule cannot have '\(\?1\)'"),
        ("(a)(?P>1)", r"a rule cannot have '\(\?P>1\)'"),
        ("(?if)ab", r"a rule cannot have '\(\?if\)ab'"),
        ("(?V1)ab", r"a rule cannot have '\(\?V1\)ab'"),
        ("(?:foo){e<=5}", r"a rule cannot match roughly, as '\{e<=5\}' says"),
        ("(?:foo){2i+1d<=3}b", "a rule cannot match roughly"),
        ("(?:a?){1000000};", "make 3000001 copies of its parts, at most 2000 are allowed"),
        ("(a{1000}){1000};", "make 1001001 copies"),
        ("(?:[(]{100}){100};", "make 10201 copies"),
        ("(" * 5000, "a rule has 1 to 2000 characters, not 5000"),
        ("(" * 1000 + ")" * 1000, "a rule has groups 1000 levels deep, at most 50 are allowed"),
        ("", "a rule has 1 to 2000 characters, not 0"),
        ("a?", "matches the empty text: it must need at least a character"),
        ("(?r)abc", r"a rule cannot have '\(\?r\)abc'"),
        ("a(?R)?", r"a rule cannot have '\(\?R\)\?'"),
    ],
)
def test_what_is_no_rule_is_refused(pattern: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Rule(1, pattern)


@pytest.mark.parametrize(
    "pattern",
    [
        "(((a{1,9999}){1,9999}){1,9999})b",
        "(?:(?:a??){0,1000}?){0,1000}b",
        "(a|b|ab|ba)+c",
        "a" * 1999,
    ],
)
def test_large_repetitions_end(pattern: str) -> None:
    rule, budget = Rule(1, pattern), Budget(feed_s=0.05, plan_s=0.05)
    budget.begin()
    try:
        rule.may_go_on("ab" * 1000 + "!", budget)
        rule.match("a" * 2000 + "!", budget)
    except PlanError as error:
        assert "rule 1" in str(error)


@pytest.mark.parametrize(
    "pattern",
    [
        r"(?P<skill>\w+)\((?P<arguments>[^()]*)\)\s*(->|;|\n)?", r"\(\?R\);", r"if \w+ \{",
        "a{2,3}",
        r"\w{8}-\w{4}-\w{4}-\w{4}-\w{12}", "(?i)stop(?-i:A)?", r"(?P<q>['\"]).*?(?P=q)", "[{}(]x",
        r"(?<n>a)(?(n)b|c)", "(?>ab|a)c(?#or not)", "(?|(a)|(b))",
    ],
)  # fmt: skip
def test_what_users_write_is_a_rule(pattern: str) -> None:
    Rule(1, pattern)


def test_whatever_a_rule_is_its_memory_and_time_have_a_bound() -> None:
    """A longer form: RULE_FUZZ=60000."""
    number = int(os.environ.get("RULE_FUZZ", "600"))
    answer = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("rule_fuzz.py")), str(number), "0"],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        capture_output=True, text=True, check=True, timeout=60 + number / 10,
    )  # fmt: skip
    found = json.loads(answer.stdout)
    assert found["rules"] > number / 10
    assert found["grown_mb"] < 128


def test_what_takes_no_time_is_not_counted_against_a_plan() -> None:
    rule, budget = Rule(1, r"\w+;"), Budget(plan_s=0.0)
    for _ in range(100):
        budget.begin()
        assert rule.may_go_on("stop", budget)
        budget.end()


@examples(300)
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
