"""Durations are written into a skill set without touching anything else in it."""

from __future__ import annotations

import difflib

import pytest

from test.skills.plans import DRONE
from timely_llm.core.errors import SkillSetError
from timely_llm.profiling.skill_file import with_durations
from timely_llm.resources import resource
from timely_llm.skills.durations import Duration
from timely_llm.skills.skill_set import parse_skill_set

TEXT = resource("config/skill_sets/drone.yaml").read_text()


def test_nothing_new_changes_nothing() -> None:
    assert with_durations(TEXT, {}, "drone.yaml") == TEXT


def test_only_lines_with_durations_change() -> None:
    search = Duration(quantiles={0.05: 1.6, 0.5: 3.0, 0.95: 9.25})
    text = with_durations(TEXT, {"s": search, "g": Duration(polynomial=(3.25,))}, "drone.yaml")
    changes = list(difflib.unified_diff(TEXT.splitlines(), text.splitlines(), n=0))
    assert [line for line in changes if line.startswith("+ ")] == [
        '+    duration: {quantiles: {"0.05": 1.6, "0.5": 3.0, "0.95": 9.25}}',
        "+    duration: {polynomial: [3.25]}",
    ]
    assert sum(line.startswith("- ") for line in changes) == 2
    assert "# 1.5275 s for each turn of 45 degrees" in text
    skills = parse_skill_set(text).skills
    assert (skills["s"].duration, skills["g"].duration.polynomial) == (search, (3.25,))


@pytest.mark.parametrize("name", ["mf", "mb"])  # who has the anchor, who shares it
def test_skills_that_share_a_duration_change_alone(name: str) -> None:
    new = Duration(polynomial=(2.0, 0.008, 8e-7), spread={0.05: 0.9, 0.95: 1.125})
    text = with_durations(TEXT, {name: new}, "drone.yaml")
    skills = parse_skill_set(text).skills
    assert skills[name].duration == new
    for other, skill in DRONE.skills.items():
        if other != name:
            assert skills[other] == skill
    assert "8.0e-7" in text
    assert "polynomial: [2.0, 0.008, 8.0e-7], spread:" in text


def test_other_ways_of_writing_are_kept() -> None:
    text = (
        "# a cart\nname: 'cart'\nprompt: |\n  You control\n  a cart.\nskills:\n"
        "  go:  # forwards\n    duration:\n      polynomial:\n      - 1.0   # measured\n"
        "    description: go\nguidance:\n- one\n- two\n"
    )
    new = with_durations(text, {"go": Duration(polynomial=(2.5,))}, "cart.yaml")
    assert new == text.replace(
        "    duration:\n      polynomial:\n      - 1.0   # measured\n",
        "    duration: {polynomial: [2.5]}\n",
    )


def test_what_is_no_skill_set_is_refused() -> None:
    with pytest.raises(SkillSetError, match=r"cart.yaml: must be a mapping"):
        with_durations("[]", {}, "cart.yaml")
