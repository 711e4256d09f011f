"""Skills that no rule of their skill set can call are found before a robot waits for them."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from timely_llm.core.errors import PlanError
from timely_llm.resources import resource
from timely_llm.skills.checkers import cut
from timely_llm.skills.rule_checker import calls_problem, uncalled
from timely_llm.skills.skill_set import SkillSet, load_skill_set
from timely_llm.skills.stop_checker import Piece

QUICK = {"polynomial": [1]}
SKILLS = {
    "go": {
        "description": "go",
        "duration": QUICK,
        "arguments": [{"name": "place", "type": "text"}],
    },
    "scan": {"description": "scan", "duration": QUICK, "returns": "text", "blocking": True},
}


def ruled(*rules: str, **more: Any) -> SkillSet:
    """Return a skill set with these rules."""
    fields = {"name": "cart", "prompt": "Go.", "language": "regex", "rules": list(rules)}
    return SkillSet.model_validate(fields | {"skills": SKILLS} | more)


@pytest.mark.parametrize(
    "rules",
    [
        (r"(?P<skill>\w+)\((?P<arguments>[^)]*)\);",),
        (r"(?<skill>go) (?<arguments>\w+);", r"(?<skill>scan);"),
        (r"(?i)(?P<skill>GO|SCAN)(?: (?P<arguments>\w+))?;",),
        (r"(?P<skill>[a-z)(]+) (?P<arguments>\w+);",),
        (r"(?P<skill>(?:g|sc)(?:o|an))\((?P<arguments>.*?)\);",),
        (r"(?P<skill>\bgo|scan\b) (?P<arguments>\w+);",),
        (r"(?P<verb>go|scan) (?P<arguments>\w+)(?P<skill>(?P=verb));",),
    ],
)
def test_rules_that_can_call_every_skill_have_no_problem(rules: tuple[str, ...]) -> None:
    assert uncalled(ruled(*rules)) == {}
    assert calls_problem(ruled(*rules)) is None


@pytest.mark.parametrize(
    ("rules", "complaint"),
    [
        (("[a-z]+;",), "no rule has the group skill, so no plan calls go, scan: write (?P<skill>"),
        ((r"(?P<skill>drive) (?P<arguments>\w+);",), "no rule's group skill matches its name"),
        ((r"(?P<skill>GO|SCAN) (?P<arguments>\w+);",), "no rule's group skill matches its name"),
        ((r"(?P<skill>go);",), "has no group arguments, and it takes some"),
    ],
)
def test_rules_from_which_no_calls_come_are_a_problem(
    rules: tuple[str, ...], complaint: str
) -> None:
    problem = calls_problem(ruled(*rules))
    assert problem is not None and complaint in problem
    assert "\n" not in problem


def test_a_blocking_skill_that_is_never_called_is_reported_to_never_block() -> None:
    found = uncalled(ruled(r"(?P<skill>go) (?P<arguments>\w+);"))
    assert found == {
        "scan": "scan is never called, so it never blocks: no rule's group skill matches its name"
    }
    assert calls_problem(ruled(r"(?P<skill>go) (?P<arguments>\w+);")) is None


@pytest.mark.parametrize("language", ["sentence", "paragraph"])
def test_prose_calls_no_skill(language: str) -> None:
    problem = calls_problem(ruled(rules=[], language=language))
    assert problem is not None and f"texts of language {language} have no calls" in problem
    assert calls_problem(ruled(rules=[], language=language, skills={})) is None


def test_rules_without_skills_have_no_problem() -> None:
    assert calls_problem(ruled("OK[.!]", skills={})) is None


names = st.sampled_from(["go", "scan", "GO", "s(an", "x"])


@given(st.lists(st.tuples(names, st.booleans()), min_size=1, max_size=3), names)
def test_a_skill_that_is_called_in_a_plan_is_never_reported_as_uncalled(
    parts: list[tuple[str, bool]], name: str
) -> None:

    rules = {
        f"(?P<skill>{re.escape(word)})" + (r" (?P<arguments>\w+);" if asks else ";")
        for word, asks in parts
    }
    skill_set = ruled(*sorted(rules))
    for text in (f"{name};", f"{name} a;"):
        try:
            pieces = cut(skill_set, text)
        except PlanError:
            continue
        called = {call.name for piece in pieces if isinstance(piece, Piece) for call in piece.calls}
        assert not called & uncalled(skill_set).keys()


def test_the_example_with_rules_calls_all_its_skills() -> None:
    skill_set = load_skill_set(resource("examples/agv.yaml"))
    assert uncalled(skill_set) == {}
    calls = [
        str(call)
        for example in skill_set.examples
        for piece in cut(skill_set, example.plan)
        if isinstance(piece, Piece)
        for call in piece.calls
    ]
    assert calls == [
        "GOTO('P1')", "LIFT(0.2)", "GOTO('P2')", "LIFT(0)",
        "GOTO('ramp')", "SCAN()", "WAIT(5)", "LIFT(1.5)",
    ]  # fmt: skip
