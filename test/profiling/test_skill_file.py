"""Durations are written into a skill set without touching anything else in it."""

from __future__ import annotations

import difflib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from test.skills.plans import DRONE
from timely_llm.core.errors import SkillSetError
from timely_llm.profiling.skill_file import with_durations
from timely_llm.resources import resource
from timely_llm.skills.skill import Duration
from timely_llm.skills.skill_set import parse_skill_set

TEXT = resource("config/skill_sets/drone.yaml").read_text()


def test_nothing_new_changes_nothing() -> None:
    assert with_durations(TEXT, {}, "drone.yaml") == TEXT


def test_only_lines_with_durations_change() -> None:
    search = Duration(quantiles={0.05: 1.6, 0.5: 3.0, 0.95: 9.25})
    text = with_durations(TEXT, {"s": search, "g": Duration(polynomial=(3.25,))}, "drone.yaml")
    changes = list(difflib.unified_diff(TEXT.splitlines(), text.splitlines(), n=0))
    assert [line for line in changes if line.startswith("+ ")] == [
        "+    # before the fit: 1.5275 s for each turn of 45 degrees, until the object is seen",
        '+    duration: {quantiles: {"0.05": 1.6, "0.5": 3.0, "0.95": 9.25}}',
        "+    duration: {polynomial: [3.25]}",
    ]
    assert "+# Fitted since then by timely-llm profile: s, g." in changes
    assert sum(line.startswith("- ") for line in changes) == 3
    skills = parse_skill_set(text).skills
    assert (skills["s"].duration, skills["g"].duration.polynomial) == (search, (3.25,))


@pytest.mark.parametrize("name", ["mf", "mb"])  # one has the anchor, the other shares it
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
        "    duration: {polynomial: [2.5]}  # before the fit: measured\n",
    )


COMMENTED = """# A cart.
# Durations: guesses, in seconds.
name: cart
prompt: Go.  # spoken in 2 s
skills:
  # about 2 s
  go:  # takes 2 s
    description: "go # far"  # on wheels
    # a guess
    duration: {polynomial: [2.0]}  # 2 s
    # not blocking
    blocking: false
  turn:
    description: turn
    duration:  # 3 s at most
      # on Monday
      polynomial:
      - 3.0  # on wood
      # 4 s on stone
    # reported to be slow
  stop: &stop
    description: stop
    duration: &second {polynomial: [1.0]}  # one second
  halt: {<<: *stop, description: halt}  # halts in 1 s
  wait:
    description: wait
    duration: *second  # as long as stop
  say: {description: say, duration: {polynomial: [1.0]}}  # loud
guidance: [Be brief.]  # 5 s to read
"""


def comments(text: str) -> list[str]:
    """Return the comments of a text, each from its mark."""
    return [line[line.rindex("# ") :] for line in text.splitlines() if "# " in line]


def test_comments_about_a_duration_that_was_fitted_are_marked_as_older() -> None:
    new = Duration(polynomial=(7.5,))
    text = with_durations(COMMENTED, {"go": new, "turn": new}, "cart.yaml")
    assert parse_skill_set(text).skills["turn"].duration == new
    marked = [line for line in comments(text) if line not in comments(COMMENTED)]
    assert marked == [
        "# Fitted since then by timely-llm profile: go, turn.",
        "# before the fit: about 2 s",
        "# before the fit: takes 2 s",
        "# before the fit: a guess",
        "# before the fit: 2 s",
        "# before the fit: 3 s at most; on Monday; on wood",
        "# before the fit: 4 s on stone",
    ]
    kept = (
        "spoken in 2 s",
        "on wheels",
        "not blocking",
        "reported to be slow",
        "one second",
        "loud",
    )
    assert all(f"# {words}\n" in text for words in kept)


def test_comments_of_durations_that_are_shared_are_marked_too() -> None:
    new = Duration(polynomial=(7.5,))
    text = with_durations(COMMENTED, {"halt": new, "wait": new, "stop": new}, "cart.yaml")
    skills = parse_skill_set(text).skills
    assert skills["halt"].duration == skills["wait"].duration == skills["stop"].duration == new
    marked = [line for line in comments(text) if line not in comments(COMMENTED)]
    assert set(marked) == {
        "# Fitted since then by timely-llm profile: halt, wait, stop.",
        "# before the fit: one second",
        "# before the fit: halts in 1 s",
        "# before the fit: as long as stop",
    }


def test_what_was_marked_is_not_marked_again() -> None:
    once = with_durations(COMMENTED, {"go": Duration(polynomial=(7.5,))}, "cart.yaml")
    twice = with_durations(once, {"go": Duration(polynomial=(8.5,))}, "cart.yaml")
    assert twice == once.replace("7.5", "8.5")
    more = with_durations(once, {"say": Duration(polynomial=(8.5,))}, "cart.yaml")
    assert "# Fitted since then by timely-llm profile: go, say.\n" in more
    assert more.count("Fitted since") == 1


def test_the_same_durations_change_no_comment() -> None:
    same = {name: skill.duration for name, skill in parse_skill_set(COMMENTED).skills.items()}
    assert with_durations(COMMENTED, same, "cart.yaml") == with_durations(
        COMMENTED, {}, "cart.yaml"
    )


words = st.sampled_from(["2 s", "a guess", "loud", "it's 3 s", "{x}", ": [", "# # 1 s"])
places = [n for n, line in enumerate(COMMENTED.splitlines()) if "# " not in line]


@settings(deadline=None, max_examples=40)
@given(
    st.dictionaries(st.sampled_from(places), words, max_size=6),
    st.dictionaries(st.integers(0, 24), words, max_size=4),
    st.sets(st.sampled_from(["go", "turn", "stop", "halt", "wait", "say"]), min_size=1),
)
def test_no_comment_is_lost_wherever_it_stands(
    beside: dict[int, str], above: dict[int, str], names: set[str]
) -> None:
    lines = []
    for number, line in enumerate(COMMENTED.splitlines()):
        if number in above:
            indent = line[: len(line) - len(line.lstrip())]
            lines.append(f"{indent}# {above[number]}")
        lines.append(f"{line}  # {beside[number]}" if number in beside else line)
    text = "\n".join(lines) + "\n"
    new = Duration(quantiles={0.0: 1.0, 1.0: 2.0})
    result = with_durations(text, dict.fromkeys(names, new), "cart.yaml")
    skills = parse_skill_set(result).skills
    assert all(skills[name].duration == new for name in names)
    for said in [*beside.values(), *above.values()]:
        assert said in result


def test_what_is_no_skill_set_is_refused() -> None:
    with pytest.raises(SkillSetError, match=r"cart.yaml: must be a mapping"):
        with_durations("[]", {}, "cart.yaml")
