"""Skill sets: their documents, their prompts, and the sentences about mistakes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from test.skills.plans import DRONE, NUMBERS, TEXTS
from timely_llm.core.errors import SkillSetError
from timely_llm.skills.minispec.checker import check_plan
from timely_llm.skills.skill import Argument
from timely_llm.skills.skill_set import load_skill_set, parse_skill_set

WAIT = {"description": "wait", "duration": {"polynomial": [1]}}
NUMBER = {"name": "x", "type": "number"}
LINES = [
    "mf(distance): move forward, distance 10 to 500 cm",
    "mb(distance): move back, distance 10 to 500 cm",
    "ml(distance): move left, distance 10 to 500 cm",
    "mr(distance): move right, distance 10 to 500 cm",
    "mu(distance): move up, distance 10 to 300 cm",
    "md(distance): move down, distance 10 to 300 cm",
    "tc(angle): turn right, angle 1 to 360 deg",
    "tu(angle): turn left, angle 1 to 360 deg",
    "d(time): wait, time 1 to 60 s",
    "s(object): look around for an object, true if found",
    "iv(object): is the object in view",
    "g(object): go to the object",
    "tp(): take a picture",
    "l(text): say a text",
]


def document(argument: dict[str, Any] | None = None, **values: object) -> str:
    """Return a small skill set in YAML, with some values replaced; None takes one out."""
    distance = {"name": "distance", "type": "integer", "minimum": 1, "maximum": 5} | (
        argument or {}
    )
    go = {"description": "go", "arguments": [distance], "duration": {"polynomial": [1]}}
    fields = {"name": "cart", "prompt": "You control a cart.", "skills": {"go": go}} | values
    return yaml.safe_dump({name: value for name, value in fields.items() if value is not None})


def skill(**values: object) -> str:
    """Return a small skill set; its only skill has these values."""
    fields = {"description": "go", "duration": {"polynomial": [1]}} | values
    return document(skills={"go": fields})


def test_the_shipped_drone_has_its_skills_and_limits() -> None:
    assert (DRONE.name, DRONE.language) == ("drone", "minispec")
    assert sorted(DRONE.skills) == sorted([*NUMBERS, *TEXTS, "tp"])
    for name, limits in NUMBERS.items():
        (argument,) = DRONE.skills[name].arguments
        assert (argument.type, argument.minimum, argument.maximum) == ("integer", *limits)
    for name, length in TEXTS.items():
        (argument,) = DRONE.skills[name].arguments
        assert (argument.type, argument.maximum_length) == ("text", length)
    returning = [name for name, skill in DRONE.skills.items() if skill.returns == "boolean"]
    assert returning == ["s", "iv"]


def test_the_shipped_examples_are_plans() -> None:
    for example in DRONE.examples:
        assert check_plan(DRONE, example.plan)


def test_the_prompt_has_a_line_for_each_skill_then_rules_and_examples() -> None:
    lines = DRONE.prompt_text().splitlines()
    assert lines[:2] == [DRONE.prompt, "Skills:"]
    assert lines[2 : 2 + len(LINES)] == LINES
    assert lines[2 + len(LINES) :] == [
        "Rules:",
        *DRONE.guidance,
        "Examples:",
        *(line for e in DRONE.examples for line in (*e.task.splitlines(), f"Plan: {e.plan}")),
    ]
    assert DRONE.prompt_text().endswith("->True;\n")


def test_a_prompt_without_rules_and_examples_ends_with_the_skills() -> None:
    text = parse_skill_set(document()).prompt_text()
    assert text == "You control a cart.\nSkills:\ngo(distance): go, distance 1 to 5\n"


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"minimum": 1, "maximum": 2.5, "unit": "m"}, "1 to 2.5 m"),
        ({"minimum": 0}, "at least 0"),
        ({"maximum": -1, "unit": "m"}, "at most -1 m"),
        ({}, "any number"),
        ({"unit": "m"}, "any number m"),
    ],
)
def test_bounds_are_put_in_words(values: dict[str, Any], words: str) -> None:
    assert Argument(name="x", type="number", **values).allowed() == words


@pytest.mark.parametrize("value", [0, 0.5, 1])
def test_a_number_on_or_between_the_bounds_is_fine(value: float) -> None:
    assert Argument(name="x", type="number", minimum=0, maximum=1).problem(value) is None


def test_a_value_just_out_of_bounds_is_shown_exactly() -> None:
    argument = Argument(name="x", type="number", minimum=0, maximum=500)
    assert argument.problem(500.0000001) == "x must be 0 to 500, not 500.0000001"


@pytest.mark.parametrize("kind", ["integer", "number", "text"])
def test_a_truth_value_is_no_argument(kind: Any) -> None:
    assert Argument(name="x", type=kind).problem(True) is not None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (document(prompt=5), "line 2: prompt: must be a text, not the number 5: quote it, '5'"),
        (document(prompt=None), "line 1: the field 'prompt' is missing"),
        (document(skils={}), "line 14: unknown field 'skils': did you mean 'skills'"),
        (document(language="python"),
         "language: must be 'minispec', .* or 'paragraph', not 'python'"),
        (document(skills={}), "line 3: skills: at least one is needed for plans"),
        (document(skills=None), "skills: at least one is needed for plans that call"),
        (document(skills=[1]), "line 3: skills: must be a mapping, not a list"),
        (document({"type": "real"}),
         "skills.go.arguments.0.type: must be 'integer', 'number' or 'text', not 'real'"),
        (document({"units": "m"}),
         "skills.go.arguments.0: unknown field 'units': did you mean 'unit'"),
        (document({"minimum": "low"}),
         "skills.go.arguments.0.minimum: must be a number, not 'low'"),
        (document({"minimum": True}), "arguments.0.minimum: must be a number, not true"),
        (document({"type": "text", "minimum": None, "maximum": None, "maximum_length": True}),
         "maximum_length: must be a number, not true"),
        (skill(duration={"polynomial": [False]}), "polynomial.0: must be a number, not false"),
        (skill(duration={"step_s": 1, "steps": [True, 2]}), "steps.0: must be a number, not true"),
        (document(words_per_s=True), "words_per_s: must be a number, not true"),
        (document({"minimum": 6}),
         "line 7: skills.go.arguments.0.minimum: minimum 6 is above maximum 5"),
        (document({"minimum": float("nan")}), "arguments.0.minimum: .* a finite number"),
        (document({"maximum": float("inf")}), "arguments.0.maximum: .* a finite number"),
        (document({"maximum_length": 0}), "maximum_length: must be at least 1, not 0"),
        (document(name="my cart"), "line 1: name: name 'my cart' must start with a letter and"),
        (document(name="1st"), "name '1st' must start with a letter"),
        (document(name="cart\n"), "must start with a letter"),
        (document(skills={"go-to": {"description": "", "duration": {"polynomial": [1]}}}), "go-to"),
        (document(skills={"True": {"description": "", "duration": {"polynomial": [1]}}}),
         "name 'True' means a value in plans: choose another"),
        (document(skills={7: {}}),
         r"line 4: skills.7: the key must be a text, not the number 7: quote it, '7'"),
        (skill(returns="object"),
         "skills.go.returns: must be 'nothing', 'boolean', .*, not 'object'"),
        (skill(duration={"polynomial": [float("nan")]}),
         "skills.go.duration.polynomial.0: must be a finite number, not .nan"),
        (skill(duration={"polynomial": []}), "polynomial: needs at least one coefficient"),
        (skill(duration={}), "skills.go.duration: a duration is either {polynomial"),
        (skill(duration={"polynomial": [1], "step_s": 1, "steps": [1, 2]}), "a duration is either"),
        (skill(duration={"polynomial": [1], "step_s": 1}), "a duration is either"),
        (skill(duration={"steps": [1, 2]}), "a duration is either"),
        (skill(duration={"step_s": 1, "steps": [3, 2]}),
         r"steps: must be \[low, high\] with 1 <= low <= high, not \[3, 2\]"),
        (skill(duration={"step_s": 1, "steps": [0, 2]}), r"not \[0, 2\]"),
        (skill(duration={"step_s": 0, "steps": [1, 2]}), "step_s: must be above 0, not 0"),
        (skill(duration=None), "skills.go.duration: must be a mapping, not nothing"),
        (skill(duration={"quantiles": {}}), "skills.go.duration.quantiles: needs at least one"),
        (skill(duration={"quantiles": {"0.5": 2, "0.9": 1}}), r"must rise .*, not \[2.0, 1.0\]"),
        (skill(duration={"quantiles": {"1.5": 2}}),
         r"quantiles.1.5: the key must be at most 1, not '1.5'"),
        (skill(duration={"quantiles": {"0.5": 0}}), "quantiles.0.5: must be above 0, not 0"),
        (skill(duration={"quantiles": {"0.5": 1}, "polynomial": [1]}), "a duration is either"),
        (skill(duration={"quantiles": {"0.5": 1}, "spread": {"0.5": 1}}),
         "spread: leave it out: it goes with a"),
        (skill(duration={"polynomial": [1], "spread": {"0.1": 2, "0.9": 1}}), "spread: must rise"),
        (document(language="regex"), "language regex needs rules, and rules need language regex"),
        (document(rules=["a"]), "language regex needs rules, and rules need language regex"),
        (document(rules=["a", "(b"], language="regex"),
         r"line 1?\d: rules.1: rule 2: '\(b' is no regular expression: a \) is missing at"),
        (document(rules=["a*"], language="regex"), r"rule 1: 'a\*' matches the empty text"),
        (document(rules=["a"] * 65, language="regex"),
         "rules: must have at most 64 entries, not 65"),
        (document(rules=["a" * 2001], language="regex"), "1 to 2000 characters, not 2001"),
        (document(rules=["a(?R)?"], language="regex"), r"a rule cannot have .\(\?R\)\?.: after"),
        (document(rules=[r"(?P<skill>\w+);"], language="regex", skills={}), "skills: at least one"),
        (document(rules=["a" * 1999] * 5, language="regex"), "have 9995 characters, at most"),
        (document(prompt="word " * 7000), "have 3[0-9]+ characters together, at most 32768"),
        (document(guidance=["be brief"] * 65), "guidance: must have at most 64 entries, not 65"),
        (document(description="x" * 2001),
         "description: must have at most 2000 characters, not 2001"),
        (document(name="x" * 5000), r"name 'x{80}\.\.\.' must start with a letter"),
        (document(skills={f"s{i}": WAIT for i in range(257)}),
         "skills: must have at most 256 entries, not 257"),
        (skill(arguments=[NUMBER] * 17),
         "skills.go.arguments: must have at most 16 entries, not 17"),
        (skill(arguments=[NUMBER | {"name": "a\nb"}]), r"0.name: it holds '\\n' at place 1"),
        (skill(arguments=[NUMBER | {"unit": "x" * 65}]), "unit: must have at most 64 characters"),
        (skill(duration={"polynomial": [1.0] * 17}), "polynomial: must have at most 16 entries"),
        (document(words_per_s=0), "words_per_s: must be above 0, not 0"),
        (document(prompt=5, name=6), r"line 1: name: .* \(and 1 more\)"),
        ("name: cart\nskills: [1, 2\n",
         r"cart.yaml: line 3, column 1 is not valid YAML: a list in brackets lacks"),
        ("name: cart\n\tskills: 1\n", r"column 1 is not valid YAML: a tab stands where spaces"),
        ("- name: cart", "cart.yaml: must be a mapping with name and prompt"),
        ("", "must be a mapping with name and prompt"),
    ],
)  # fmt: skip
def test_a_mistake_is_named_with_its_place_and_what_is_allowed(text: str, message: str) -> None:
    with pytest.raises(SkillSetError, match=message) as error:
        parse_skill_set(text, "cart.yaml")
    assert "\n" not in str(error.value)
    assert str(error.value).startswith("cart.yaml: ")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(SkillSetError, match=r"cannot read skill set .*none.yaml: No such file"):
        load_skill_set(tmp_path / "none.yaml")


def test_the_file_is_named_in_its_mistakes(tmp_path: Path) -> None:
    path = tmp_path / "cart.yaml"
    path.write_text(document(skills=7))
    with pytest.raises(SkillSetError, match=r"cart.yaml: line 3: skills: must be a mapping, not 7"):
        load_skill_set(str(path))
    path.write_text(document())
    assert load_skill_set(path).name == "cart"
