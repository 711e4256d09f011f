"""Answers of the engine without a model."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from timely_llm.core.clock import VirtualClock
from timely_llm.engines.example_script import NO_MODEL, ExampleScript, every_skill, parts_of
from timely_llm.engines.profiles import Profile
from timely_llm.engines.simulated import SimulatedEngine
from timely_llm.policies.contract import StepPlan
from timely_llm.resources import resource
from timely_llm.skills.checkers import cut
from timely_llm.skills.skill_set import SkillSet, load_skill_set, parse_skill_set

AMR = """
name: amr
prompt: You control a warehouse robot.
skills:
  goto:
    description: drive to a shelf
    arguments: [{name: shelf, type: text, maximum_length: 2}]
    duration: {polynomial: [5.0]}
  lift:
    description: move the fork
    arguments: [{name: height, type: integer, minimum: 0.5, maximum: 180}]
    duration: {polynomial: [2.0]}
  scan:
    description: read the label
    duration: {polynomial: [1.0]}
    returns: text
    blocking: true
examples:
  - task: Fetch the pallet from B2.
    plan: "goto('B2');scan();=> box\\nlift(20);scan();=> pallet\\nlift(40);"
  - {task: Park at A1., plan: "goto('A1');"}
  - {task: "Park at A1, now!", plan: "goto('A1');->True;"}
"""


@pytest.fixture
def amr() -> SkillSet:
    return parse_skill_set(AMR)


def said(
    engine: SimulatedEngine, skill_set: SkillSet, task: str, values: tuple[str, ...] = ()
) -> Iterator[str]:
    """Yield what a sequence says until it ends, or before each value."""
    tokens = engine.add(
        "r",
        engine.tokenizer.encode_chat(
            [
                {"role": "system", "content": skill_set.prompt_text()},
                {"role": "user", "content": task},
            ]
        ),
    )
    for value in (*values, None):
        text = ""
        while True:
            engine.submit(StepPlan((("r", tokens),)))
            (token,) = engine.collect().tokens["r"]
            tokens = 1
            if token == engine.tokenizer.eos_id:
                break
            text += engine.tokenizer.decode([token])
            if value is not None and text.endswith("scan();"):
                break
        yield text
        if value is not None:
            answer = engine.tokenizer.encode(skill_set.answer_text(value))
            tokens = engine.append("r", answer)
    engine.remove("r")


def engine_of(*skill_sets: SkillSet) -> SimulatedEngine:
    profile = Profile("quick", "made up", 0.01, 0, 0)
    return SimulatedEngine(profile, ExampleScript(lambda: skill_sets), VirtualClock())


def test_the_example_with_the_most_words_in_common_answers(amr: SkillSet) -> None:
    engine = engine_of(load_skill_set(resource("config/skill_sets/drone.yaml")), amr)
    assert list(said(engine, amr, "Now park at A1!")) == ["goto('A1');->True;"]
    assert list(said(engine, amr, "park at shelf A1")) == ["goto('A1');"]


def test_examples_that_are_equally_near_answer_in_turn(amr: SkillSet) -> None:
    script = ExampleScript(lambda: [amr])
    prompt = f"<system>\n{amr.prompt_text()}\n<user>\nxyzzy\n<assistant>\n"
    first = [script(str(n), prompt) for n in range(4)]
    assert first == ["goto('B2');scan();", "goto('A1');", "goto('A1');->True;", first[0]]


def test_what_follows_a_blocking_call_is_said_after_its_value(amr: SkillSet) -> None:
    parts = list(said(engine_of(amr), amr, "Fetch the pallet from B2", ("nothing", "=> x")))
    assert parts == ["goto('B2');scan();", "lift(20);scan();", "lift(40);"]


def test_a_skill_set_without_examples_is_answered_with_each_of_its_skills(amr: SkillSet) -> None:
    bare = amr.model_copy(update={"examples": ()})
    plan = "goto('sh');lift(1);scan();->True;"
    assert every_skill(bare) == plan
    assert list(said(engine_of(bare), bare, "Go!", ("x",))) == [
        "goto('sh');lift(1);scan();",
        "->True;",
    ]


@pytest.mark.parametrize("name", ["drone", "arm"])
def test_a_plan_that_calls_each_skill_is_a_plan(name: str) -> None:
    skill_set = load_skill_set(resource(f"config/skill_sets/{name}.yaml"))
    cut(skill_set, every_skill(skill_set))


def test_an_example_that_is_no_plan_is_said_as_it_stands(amr: SkillSet) -> None:
    assert parts_of(amr, "fly(1);") == ["fly(1);"]


def test_a_conversation_is_answered_in_prose(amr: SkillSet) -> None:
    engine = engine_of(amr)
    prompt = engine.tokenizer.encode_chat([{"role": "user", "content": "Who are you?"}])
    script = ExampleScript(lambda: [amr])
    assert script("r", engine.tokenizer.decode(prompt)) == NO_MODEL
