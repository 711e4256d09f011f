"""Errors of a document are in this package's words, never in a library's."""

from __future__ import annotations

import copy
import datetime
import difflib
import re
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import yaml
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core._pydantic_core import list_all_errors

from test.examples import examples
from timely_llm.core.documents import problems
from timely_llm.core.documents.problems import (
    OTHERWISE,
    field_problem,
    validation_problem,
    yaml_problem,
)
from timely_llm.core.documents.read import read_document
from timely_llm.core.errors import SkillSetError, TimelyError
from timely_llm.resources import resource
from timely_llm.robots.questions import QuestionSet
from timely_llm.robots.tasks import TaskSet
from timely_llm.skills.skill_set import parse_skill_set

LIBRARY = re.compile(
    r"Input should|should (be|have|match)|Extra inputs|Field required|Keys should|"
    r"valid (string|integer|number|boolean|tuple|dictionary|list)\b|unable to|Value error|"
    r"did not find|could not (find|determine)|found (char|un|dup|a tab|invalid|incomp|extremely)|"
    r"while (parsing|scanning|constructing)|mapping values|sequence entries|expected <|"
    r"missing \)|nothing to repeat|unbalanced|at position|unterminated|multiple repeat|"
    r"type=|input_type|pydantic|ruamel|yaml\.org|Error\b|Traceback|codec|format string"
)
"""Words of pydantic, PyYAML, regex and Python."""

SKILL_FILES = [
    resource(f"{folder}/{name}.yaml")
    for folder, name in (
        ("config/skill_sets", "drone"), ("config/skill_sets", "arm"),
        ("examples", "amr"), ("examples", "agv"),
    )
]  # fmt: skip


def check_sentence(said: str, source: str = "cart.yaml") -> None:
    """Check that an error is one sentence of this package's, with a line."""
    assert said.startswith(source)
    assert not LIBRARY.search(said), said
    assert "\n" not in said and said.isprintable()
    whole = rf"{source}( has|: must be a mapping| is nested| is not valid YAML: the text)"
    assert re.search(r"line [1-9]\d*\b", said) or re.match(whole, said), said
    assert len(said) < 1200


@pytest.mark.parametrize("known", list_all_errors(), ids=lambda known: str(known["type"]))
@pytest.mark.parametrize("value", [None, "x", 5, [1], {"a": 1}])
def test_every_error_that_pydantic_knows_has_words(known: Any, value: object) -> None:
    context = dict(known["example_context"] or {})
    if known["type"] in ("value_error", "assertion_error"):
        context = {"error": ValueError("the cart is full")}
    made = ValidationError.from_exception_data(
        "cart", [{"type": known["type"], "loc": ("load",), "input": value, "ctx": context}]
    )
    said = field_problem(made.errors()[0])
    parts = re.split(r"\{\w+\}|, |'", known["message_template_python"])
    for part in (part.strip() for part in parts):
        assert len(part.split()) < 3 or part not in said, said
    assert not LIBRARY.search(said), said
    whole = validation_problem(made, Cart, {"load": value})
    assert "load" in whole and not LIBRARY.search(whole)


class Cart(BaseModel):
    """A model to try it with."""

    model_config = ConfigDict(extra="forbid")

    load: int = 0
    parts: dict[str, list[str | int]] = {}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("load: 1\nlaod: 2", "line 2: unknown field 'laod': did you mean 'load'?"),
        ("laod: {}", "line 1: unknown field 'laod': did you mean 'load'?"),
        ("load: 1\nparts:\n  a: [1.5]",
         "line 3: parts.a.0: must be a text or a whole number, not 1.5"),
        ("load: 1\nparts:\n  a:\n  - b\n  - {}\n  - []",
         "line 5: parts.a.1: must be a text or a whole number, not a mapping (and 1 more)"),
        ("load:\n", "line 1: load: must be a whole number, not nothing"),
        ("load: 1\nparts: {on: [a]}",
         "line 2: parts.on: the key must be a text: on means true in YAML, so quote it: 'on'"),
        ("load: 1\n\nload: 2", "line 3: 'load' stands twice, first in line 1: give each name once"),
        ("x: &x {load: 1, load: 2}", "line 1: 'load' stands twice, first in line 1"),
        ("a: &a {load: x}\n<<: *a", "line 1: load: must be a whole number, not 'x' (and 1 more)"),
    ],
)  # fmt: skip
def test_the_place_the_line_and_the_nearest_name_are_named(text: str, said: str) -> None:
    with pytest.raises(TimelyError) as error:
        read_document(text, Cart, "cart.yaml", TimelyError)
    assert str(error.value).startswith(f"cart.yaml: {said}")


@pytest.mark.parametrize(
    ("choices", "said"),
    [
        ("[on, off, 1]", "choices.0: must be a text: on means true in YAML, so quote it: 'on'"),
        ("[A1, no]", "choices.1: must be a text: no means false in YAML, so quote it: 'no'"),
        ("[true]", "choices.0: must be a text: true is a truth value in YAML, so quote it: 'true'"),
        ("[A1, 017]", "choices.1: must be a text, not the number 017: quote it, '017'"),
        ("[2026-01-02]", "choices.0: must be a text, not the date 2026-01-02: quote it, '2026"),
        ("[1:30]", "choices.0: must be a text, not the number 1:30: quote it, '1:30'"),
        ("[A1, ~]", "choices.1: must be a text, not nothing"),
        ("[A1, A1]", "choices.1: 'A1' stands twice: name each choice once"),
        ("[A1, [B1]]", "choices.1: must be a text, not a list"),
        ("A1", "choices: must be a list such as [A1, A2, B1], not 'A1'"),
        ("[]", "choices: must name at least one value, or be left out"),
        ("[' A1']", "choices.0: ' A1' must not begin or end with a space"),
        ("['']", "choices.0: must have 1 to 200 characters, not 0"),
        ('["a\\nb"]', "choices.0: it holds '\\n' at place 1: it must be one line"),
    ],
)
def test_choices_that_yaml_takes_for_values_are_to_be_quoted(choices: str, said: str) -> None:
    lines = (
        "name: cart", "prompt: Go.", "skills:", "  go:", "    description: go", "    arguments:",
        f"    - {{name: place, type: text, choices: {choices}}}", "    duration: {polynomial: [1]}",
    )  # fmt: skip
    with pytest.raises(SkillSetError) as error:
        parse_skill_set("\n".join(lines), "cart.yaml")
    assert str(error.value).startswith(f"cart.yaml: line 7: skills.go.arguments.0.{said}")


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("    duration: {polynomial: [0.8]}", "    duraton: {polynomial: [0.8]}",
         "line 19: skills.scan: unknown field 'duraton': did you mean 'duration'?"),
        ("  dock:", "  lift:", "line 22: 'lift' stands twice, first in line 13: give each name"),
        ("[{name: height_cm, ", "[{name: height_cm, type: text}, {name: height_cm, ",
         "line 15: skills.lift.arguments.1.name: 'height_cm' stands twice: give each argument"),
        ('"0": 6, "0.5": 12', '"0.5": 6, "0.50": 12',
         "skills.goto.duration.quantiles.0.50: 0.50 is the same share as 0.5: give each once"),
        ("type: text, choices", "type: text, minimum: 1, choices",
         "skills.goto.arguments.0.minimum: leave it out: choices say which values are allowed"),
        ("type: integer, unit", "type: integer, maximum_length: 1, unit",
         "skills.lift.arguments.0.maximum_length: leave it out, or set type to text"),
        ("returns: text", "returns: txt", "not 'txt'"),
    ],
)  # fmt: skip
def test_a_mistake_in_a_skill_set_is_found_in_its_line(old: str, new: str, said: str) -> None:
    text = SKILL_FILES[2].read_text()
    assert old in text
    with pytest.raises(SkillSetError) as error:
        parse_skill_set(text.replace(old, new, 1), "amr.yaml")
    assert said in str(error.value)
    check_sentence(str(error.value), "amr.yaml")


def test_an_example_or_a_rule_that_stands_twice_is_refused() -> None:
    text = SKILL_FILES[3].read_text()
    example = text[text.index('  - task: "Task: [A] Bring') : text.index('  - task: "Task: [A] Sc')]
    for twice, said in (
        (text + example, "examples.2: the example stands twice"),
        (text.replace("  - END;\n", "  - END;\n  - END;\n"), "rules.4: the rule stands twice"),
    ):
        with pytest.raises(SkillSetError, match=said) as error:
            parse_skill_set(twice, "agv.yaml")
        check_sentence(str(error.value), "agv.yaml")


def test_of_thousands_of_mistakes_few_are_looked_at_and_all_are_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looked = Mock(side_effect=difflib.get_close_matches)
    monkeypatch.setattr(problems, "get_close_matches", looked)
    text = "load: 1\n" + "".join(f"lo{number}: 1\n" for number in range(9000))
    with pytest.raises(TimelyError) as error:
        read_document(text, Cart, "cart.yaml", TimelyError)
    assert str(error.value).startswith("cart.yaml: line 2: unknown field 'lo0'")
    assert str(error.value).endswith("(and 8999 more)")
    assert looked.call_count == problems.MAX_LOOKED_AT


leaves: st.SearchStrategy[Any] = st.one_of(
    st.none(), st.booleans(), st.integers(-9, 10**6), st.floats(), st.text(max_size=9),
    st.sampled_from(["A1", "(", "a*", "[b", "(?P<skill>", "{x}", "x" * 5000, [], {}, [[1]]]),
    st.just(datetime.date(2026, 1, 2)), st.just({"a": 1}), st.just({1: 2}),
)  # fmt: skip


def places(data: Any) -> list[tuple[Any, Any]]:
    """Return each mapping and list of a document with each of its keys or indices."""
    entries = (
        list(data.items()) if isinstance(data, dict)
        else list(enumerate(data)) if isinstance(data, list) else []
    )  # fmt: skip
    return [(data, key) for key, _ in entries] + [
        place for _, value in entries for place in places(value)
    ]


MARKS = [*"\t\n\0:{}[]'\"-&*!%@|># "]


@st.composite
def spoilt(draw: st.DrawFn, files: list[Path]) -> str:
    """Return a document in which some things are replaced, renamed, left out or doubled."""
    data = copy.deepcopy(yaml.safe_load(draw(st.sampled_from(files)).read_text()))
    for _ in range(draw(st.integers(1, 3))):
        inside, key = draw(st.sampled_from(places(data)))
        what = draw(st.sampled_from(["replace", "rename", "remove", "double"]))
        if what == "replace":
            inside[key] = copy.deepcopy(draw(leaves))  # it may be changed below
        elif what == "remove":
            del inside[key]
        elif isinstance(inside, list):
            inside.append(copy.deepcopy(inside[key]))
        elif what == "rename":
            name = str(key)
            inside[draw(st.sampled_from([name[1:], name + "s", 7, True, "é"]))] = inside.pop(key)
        if not places(data):
            break
    text = yaml.dump(data, sort_keys=False, Dumper=yaml.SafeDumper)
    for _ in range(draw(st.integers(0, 2))):
        place, skipped = draw(st.integers(0, len(text))), draw(st.integers(0, 1))
        text = text[:place] + draw(st.sampled_from(MARKS)) + text[place + skipped :]
    return text


@examples(120, suppress_health_check=list(HealthCheck))
@given(text=spoilt(SKILL_FILES))
def test_whatever_is_wrong_with_a_skill_set_is_one_sentence_of_ours(text: str) -> None:
    try:
        parse_skill_set(text, "cart.yaml")
    except SkillSetError as error:
        check_sentence(str(error))


@examples(60, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_other_documents_are_refused_in_one_sentence_of_ours(
    data: st.DataObject,
) -> None:
    files: dict[Path, type[BaseModel]] = {
        resource("config/tasks/drone.yaml"): TaskSet,
        resource("config/questions/small_talk.yaml"): QuestionSet,
    }
    file, model = data.draw(st.sampled_from(list(files.items())))
    try:
        read_document(data.draw(spoilt([file])), model, "cart.yaml", TimelyError)
    except TimelyError as error:
        check_sentence(str(error))


def test_every_problem_of_yaml_parsers_has_words() -> None:
    for problem in YAML_PROBLEMS:
        said = yaml_problem(yaml.MarkedYAMLError(problem=problem))
        assert not LIBRARY.search(said), said
        assert OTHERWISE not in said, problem


YAML_PROBLEMS = (
    "mapping values are not allowed in this context",
    "found character that cannot start any token",
    "found character '\\t' that cannot start any token",
    "found a tab character that violates indentation",
    "found a tab character where an indentation space is expected",
    "did not find expected ',' or ']'",
    "did not find expected ',' or '}'",
    "did not find expected '-' indicator",
    "did not find expected key",
    "could not find expected ':'",
    "did not find expected node content",
    "did not find expected <document start>",
    "block sequence entries are not allowed in this context",
    "mapping keys are not allowed in this context",
    "found unexpected end of stream",
    "found unexpected document indicator",
    "found unknown escape character",
    "found unexpected ':'",
    "did not find expected hexdecimal number",
    "found invalid Unicode character escape code",
    "did not find expected alphabetic or numeric character",
    "did not find expected comment or line break",
    "found an indentation indicator equal to 0",
    "found undefined tag handle",
    "did not find expected tag URI",
    "could not determine a constructor for the tag '!x'",
    "found undefined alias",
    "found duplicate anchor",
    "found unhashable key",
    "expected a mapping or list of mappings for merging, but found scalar",
    "found unknown directive name",
    "did not find expected digit or '.' character",
    "control characters are not allowed",
)
