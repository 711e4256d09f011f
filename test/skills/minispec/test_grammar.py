"""Every text of a skill set's grammar is a plan that the stop checker takes."""

from __future__ import annotations

import random
from fractions import Fraction
from pathlib import Path
from typing import Any

import lark
import pytest
from hypothesis import HealthCheck, assume, given
from hypothesis import strategies as st
from hypothesis.extra.lark import from_lark
from llguidance import LLMatcher, LLTokenizer

from test.examples import examples
from test.skills.plans import DRONE
from timely_llm.core.errors import PlanError
from timely_llm.resources import resource
from timely_llm.skills.choices import literal
from timely_llm.skills.minispec.builder import MAX_DEPTH, MAX_REPETITIONS
from timely_llm.skills.minispec.checker import MiniSpecChecker, check_plan
from timely_llm.skills.minispec.grammar import MOST_BLOCKS, MOST_LOOPS, MOST_ROUNDS, plan_grammar
from timely_llm.skills.skill import Argument
from timely_llm.skills.skill_set import SkillSet, load_skill_set

ARM = load_skill_set(resource("config/skill_sets/arm.yaml"))
QUICK = {"polynomial": [1.0]}

bounds = st.none() | st.integers(-3000, 3000) | st.floats(-1e9, 1e9).map(lambda x: round(x, 3))
bounds |= st.sampled_from([0.0, 0.05, 1e-7, -0.5, 1e12, 99.995])


choices = {
    "integer": st.integers(-(10**15) + 1, 10**16 - 1),
    "number": st.integers(-(10**6), 10**6).map(lambda n: n / 1000) | st.integers(-99, 99),
    "text": st.text(
        st.characters(exclude_categories=["Cc", "Cs", "Zl", "Zp"]), min_size=1, max_size=30
    )
    .map(str.strip)
    .filter(bool)
    | st.sampled_from(["A1", "A2", "it's", 'a "b"', "\\", "a/b", "x\\'\"y", "]", "{n}", "#"]),
}


@st.composite
def arguments(draw: st.DrawFn) -> dict[str, Any]:
    kind = draw(st.sampled_from(["integer", "number", "text"]))
    if draw(st.integers(0, 2)) == 0:
        named = draw(st.lists(choices[kind], min_size=1, max_size=4, unique=True))
        return {"name": "a", "type": kind, "choices": named}
    if kind == "text":
        return {"name": "a", "type": kind, "maximum_length": draw(st.integers(1, 9))}
    low, high = draw(bounds), draw(bounds)
    if low is not None and high is not None:
        low, high = min(low, high), max(low, high)
    return {"name": "a", "type": kind, "minimum": low, "maximum": high}


@st.composite
def skills(draw: st.DrawFn) -> dict[str, Any]:
    returns = draw(st.sampled_from(["nothing", "boolean", "number", "text"]))
    blocking = returns != "nothing" and draw(st.booleans())
    asked = draw(st.lists(arguments(), max_size=3))
    named = [{**argument, "name": f"a{place}"} for place, argument in enumerate(asked)]
    return {
        "description": "x", "arguments": named, "duration": QUICK, "returns": returns,
        "blocking": blocking,
    }  # fmt: skip


names = st.text("ab_T9", min_size=1, max_size=3).filter(lambda name: not name[0].isdigit())
skill_sets = st.dictionaries(names, skills(), min_size=1, max_size=4).map(
    lambda found: SkillSet.model_validate({"name": "any", "prompt": "x", "skills": found})
)


def matcher(skill_set: SkillSet) -> LLMatcher:
    """Return a matcher that reads byte by byte."""
    found = LLMatcher(LLTokenizer("byte"), LLMatcher.grammar_from_lark(plan_grammar(skill_set)))
    assert not found.is_error(), found.get_error()
    return found


def takes(skill_set: SkillSet, text: str) -> bool:
    """Return whether a text is one of the grammar."""
    found = matcher(skill_set)
    read = text.encode()
    return found.try_consume_tokens(list(read)) == len(read) and found.is_accepting()


@examples(150, suppress_health_check=list(HealthCheck))
@given(text=from_lark(lark.Lark(plan_grammar(DRONE))))
def test_every_text_is_a_plan_of_the_drone(text: str) -> None:
    check_plan(DRONE, text)


@examples(150, suppress_health_check=list(HealthCheck))
@given(text=from_lark(lark.Lark(plan_grammar(ARM))))
def test_every_text_is_a_plan_of_the_arm(text: str) -> None:
    check_plan(ARM, text)


@examples(150, suppress_health_check=list(HealthCheck))
@given(skill_set=skill_sets, seed=st.integers(0, 1 << 32), bias=st.sampled_from([1, 4, 20]))
def test_every_text_of_any_skill_set_is_a_plan(skill_set: SkillSet, seed: int, bias: int) -> None:
    rng, found, text = random.Random(seed), matcher(skill_set), b""
    while not found.is_stopped():
        mask = found.compute_bitmask()
        allowed = [byte for byte in range(256) if mask[byte // 8] >> byte % 8 & 1]
        if found.is_accepting() and (not allowed or rng.random() < 0.2):
            break
        # Towards the ends of things, or there would be texts of the greatest length only.
        weights = [bias if chr(byte) in "'\");}>" else 1 for byte in allowed]
        (byte,) = rng.choices(allowed, weights)
        assert found.consume_token(byte), found.get_error()
        text += bytes([byte])
        assume(len(text) < 2000)
    for piece in check_plan(skill_set, text.decode()):
        for call in piece.calls:
            asked = skill_set.skills[call.name].arguments
            for argument, value in zip(asked, call.arguments, strict=True):
                assert not argument.choices or value in argument.choices


@examples(150)
@given(argument=arguments().filter(lambda argument: "choices" in argument), data=st.data())
def test_a_plan_names_a_choice_or_is_neither_in_the_grammar_nor_taken(
    argument: dict[str, Any], data: st.DataObject
) -> None:
    skill = {"description": "x", "arguments": [argument], "duration": QUICK}
    skill_set = SkillSet.model_validate({"name": "any", "prompt": "x", "skills": {"f": skill}})
    named = argument["choices"]
    value = data.draw(st.sampled_from(named) | choices[argument["type"]])
    text = f"f({literal(value)});"
    assert takes(skill_set, text) == (value in named)
    if value in named:
        ((call,),) = (piece.calls for piece in check_plan(skill_set, text))
        assert call.arguments == (value,)
    else:
        checker = MiniSpecChecker(skill_set)
        with pytest.raises(PlanError, match=r"f: a must be .*, not "):
            checker.feed(text)
        with pytest.raises(PlanError):  # nor is it cut later
            checker.finish()


@examples(200)
@given(argument=arguments(), data=st.data())
def test_numbers_are_those_within_the_bounds(argument: dict[str, Any], data: st.DataObject) -> None:
    assume("choices" not in argument)
    argument = {**argument, "type": data.draw(st.sampled_from(["integer", "number"]))}
    argument.pop("maximum_length", None)
    low, high = (argument.get(name) or 0 for name in ("minimum", "maximum"))
    near = data.draw(st.sampled_from([low, high])) + data.draw(st.integers(-300, 300)) / 100
    written = data.draw(st.sampled_from([f"{near:.2f}", f"{near:.0f}", f"{near:.1f}"]))
    skill = {"description": "x", "arguments": [argument], "duration": QUICK}
    skill_set = SkillSet.model_validate({"name": "any", "prompt": "x", "skills": {"f": skill}})
    number = float(written) if "." in written else int(written)
    fine = Argument.model_validate(argument).problem(number) is None
    assume(abs(Fraction(written)) < 10**6 or not fine)
    assume(number or "-" not in written)
    assert takes(skill_set, f"f({written});") == fine


@pytest.mark.parametrize(
    "text",
    [
        "?s('cat'){g('cat');->True;};->False;",
        "mu(100);mb(50);->True;",
        "mf(50); tc(90);\n->True;",
        "3{mf(10);tp();}",
        "?iv('a')&s('b')==True | iv(\"c\") != false -> {tp();}l('x y');->3.5;",
        "100{100{?s('é'){tp();}}}",
        "->'no cat';",
    ],
)
def test_plans_that_models_write(text: str) -> None:
    check_plan(DRONE, text)
    assert takes(DRONE, text)


@pytest.mark.parametrize(
    "text",
    [
        "", " ", "mf(50)", "mf(9);", "mf(501);", "mf(050);", "mf(50.0);", "mf('50');", "mf();",
        "up(1);", "s('');", "s('a\nb');", "s('it\\'s');", f"g('{'x' * 41}');", "->True;mf(50);",
        "0{tp();}", "101{tp();}", "2{}", "?tp(){tp();}", "?s('a')<3{tp();}", "?s('a'){}", "tp();}",
        "2{2{2{tp();}}}",
    ],
)  # fmt: skip
def test_texts_that_are_left_out(text: str) -> None:
    assert not takes(DRONE, text)


def test_a_blocking_skill_is_a_statement_outside_of_loops() -> None:
    returns = {"description": "x", "duration": QUICK, "returns": "boolean"}
    skill_set = SkillSet.model_validate(
        {
            "name": "any",
            "prompt": "x",
            "skills": {"see": returns, "ask": {**returns, "blocking": 1}},
        }
    )
    for text in ("ask();", "see();", "?see(){ask();}", "?see(){see();ask();}ask();->1;"):
        assert takes(skill_set, text)
    for text in ("?ask(){see();}", "?see()&ask(){see();}", "2{ask();}", "2{?see(){ask();}}"):
        assert not takes(skill_set, text)


def test_after_a_return_at_the_top_there_is_nothing() -> None:
    found = matcher(ARM)
    assert found.consume_tokens(list(b"open();->True;"))
    assert found.is_stopped() and found.stop_reason() == "NoExtension"


def test_the_deepest_plan_keeps_the_checkers_limits() -> None:
    assert MOST_BLOCKS <= MAX_DEPTH
    assert MOST_ROUNDS**MOST_LOOPS <= MAX_REPETITIONS
    ifs = MOST_BLOCKS - MOST_LOOPS
    text = f"{MOST_ROUNDS}{{" * MOST_LOOPS + "?iv('a'){" * ifs + "tp();" + "}" * MOST_BLOCKS
    check_plan(DRONE, text)
    assert takes(DRONE, text)
    assert not takes(DRONE, "?iv('a'){" * (MOST_BLOCKS + 1) + "tp();" + "}" * (MOST_BLOCKS + 1))


def test_skills_that_nothing_suits_are_left_out() -> None:
    between = {"name": "n", "type": "integer", "minimum": 1.2, "maximum": 1.8}
    skill = {"description": "x", "duration": QUICK, "arguments": [between]}
    skill_set = SkillSet.model_validate({"name": "any", "prompt": "x", "skills": {"f": skill}})
    assert '"f("' not in plan_grammar(skill_set)
    assert takes(skill_set, "->True;")


def test_all_skill_sets_of_the_package_have_a_grammar() -> None:
    for file in Path(resource("config/skill_sets")).glob("*.yaml"):
        matcher(load_skill_set(file))
