"""Answers of the engine without a model."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from timely_llm.core.clock import VirtualClock
from timely_llm.core.step import StepPlan
from timely_llm.engines.example_script import NO_MODEL, ExampleScript, every_skill, parts_of
from timely_llm.engines.simulated import Profile, SimulatedEngine
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
    ).to_compute
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
            tokens = engine.append("r", answer).to_compute
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


def test_other_tasks_between_do_not_change_which_example_is_next(amr: SkillSet) -> None:
    amr_twice = amr.model_copy(
        update={"examples": (*amr.examples, amr.examples[1].model_copy(update={"plan": "x"}))}
    )
    script = ExampleScript(lambda: [amr_twice])
    near, far = (
        f"<system>\n{amr_twice.prompt_text()}\n<user>\n{task}\n<assistant>\n"
        for task in ("Park at A1.", "Park at A1 now!")
    )
    plans = [(script("a", near), script("b", far)) for _ in range(3)]
    assert plans == [
        ("goto('A1');", "goto('A1');->True;"), ("x", "goto('A1');->True;"),
        ("goto('A1');", "goto('A1');->True;"),
    ]  # fmt: skip


@pytest.mark.parametrize("reverse", [False, True])
def test_a_skill_set_does_not_answer_for_one_that_begins_with_its_text(reverse: bool) -> None:
    first = parse_skill_set(AMR.partition("  - {task: Park at A1.,")[0])
    longer = parse_skill_set(AMR.replace("name: amr", "name: longer"))
    assert longer.prompt_text().startswith(first.prompt_text())
    engine = engine_of(*((longer, first) if reverse else (first, longer)))
    assert list(said(engine, longer, "Park at A1.")) == ["goto('A1');"]
    assert next(said(engine, first, "Park at A1.", ("x", "y"))) == "goto('B2');scan();"


def test_what_follows_a_blocking_call_comes_after_its_value(amr: SkillSet) -> None:
    parts = list(said(engine_of(amr), amr, "Fetch the pallet from B2", ("nothing", "=> x")))
    assert parts == ["goto('B2');scan();", "lift(20);scan();", "lift(40);"]


def test_what_follows_a_part_of_a_plan_is_its_rest(amr: SkillSet) -> None:
    prompt = f"<system>\n{amr.prompt_text()}\n<user>\nFetch the pallet from B2.\n<assistant>\n"
    script = ExampleScript(lambda: [amr])
    assert script("r", prompt + "goto('B2');") == "scan();"
    assert (
        script("r", prompt + "goto('B2');scan();" + amr.answer_text("x") + "lift(2") == "0);scan();"
    )


def test_a_value_that_is_read_inside_a_block_is_followed_by_the_rest_of_the_same_plan() -> None:
    amr = load_skill_set(resource("examples/amr.yaml"))
    task = "Take stock of shelf B2: raise the lift twice to show it is checked."
    parts = list(said(engine_of(amr), amr, task, ("=> pallet 17",)))
    assert parts == [
        "?goto('B2'){scan();", "2{lift(120);lift(0);};dock();->True;};dock();->False;",
    ]  # fmt: skip


def test_what_follows_a_blocking_call_in_a_block_comes_after_its_value() -> None:
    sensor = "{description: is it ready, returns: boolean, duration: {polynomial: [0.1]}}"
    skills = AMR.partition("examples:")[0].replace("  goto:", f"  ready: {sensor}\n  goto:")
    examples = """
examples:
  - task: Empty B2.
    plan: "?ready(){?ready(){scan();=> full\\n2{lift(1);};scan();=> empty\\nlift(2);};};->False;"
"""
    skill_set = parse_skill_set(skills + examples)
    assert list(said(engine_of(skill_set), skill_set, "Empty B2!", ("full", "empty"))) == [
        "?ready(){?ready(){scan();", "2{lift(1);};scan();", "lift(2);};};->False;",
    ]  # fmt: skip


def test_the_value_of_a_blocking_call_decides_between_examples_that_begin_alike() -> None:
    examples = """
  - {task: Park at B2., plan: "goto('B2');scan();=> full\\nlift(1);"}
  - {task: Empty B2., plan: "goto('B2');scan();=> 3 boxes\\nlift(2);"}
  - {task: Empty B2., plan: "goto('B2');scan();=> no box\\nlift(3);scan();=> a door\\nlift(4);"}
  - {task: Empty B2., plan: "goto('B2');scan();=> no box\\nlift(3);scan();=> a wall\\nlift(5);"}
"""
    skill_set = parse_skill_set(AMR.partition("examples:")[0] + "examples:" + examples)

    def rest(*values: str) -> list[str]:
        return list(said(engine_of(skill_set), skill_set, "Empty B2!", values))[1:]

    assert rest("3 boxes") == ["lift(2);"]
    assert rest("no box", "a wall") == ["lift(3);scan();", "lift(5);"]
    assert rest("full") == ["lift(2);"]  # of the task, not of another one with this value


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


def test_an_example_that_is_no_plan_is_answered_as_it_stands(amr: SkillSet) -> None:
    assert parts_of(amr, "fly(1);") == ["fly(1);"]


def test_a_conversation_is_answered_in_prose(amr: SkillSet) -> None:
    engine = engine_of(amr)
    prompt = engine.tokenizer.encode_chat([{"role": "user", "content": "What are you?"}])
    script = ExampleScript(lambda: [amr])
    assert script("r", engine.tokenizer.decode(prompt)) == NO_MODEL
