"""Steps in plain words: each belongs to its plan, and a server takes them."""

from __future__ import annotations

from random import Random

import pytest

from timely_llm.progressive.plan import grounded
from timely_llm.progressive.sketch_reader import SketchReader
from tools.tiny_planner import corpus
from tools.tiny_planner.evaluate_help import Outcome, table_row, usable_steps
from tools.tiny_planner.step_words import steps_of


@pytest.mark.parametrize(
    ("plan", "steps"),
    [
        ("mf(50);d(1);->True;", ["move forward 50 cm", "wait 1 second"]),
        (
            "?s('cat'){g('cat');tp();->True;};->False;",
            ["search for the cat", "go to the cat", "take a picture"],
        ),
        ("pick('red cup');place('box');->True;", ["put the red cup on the box"]),
        ("4{mf(100);tc(90);};->True;", None),
        ("?iv('cat'){l('Yes');->True;};l('No');->False;", None),
        ("mf(50);->False;", None),
    ],
)
def test_steps_are_read_from_a_plan_that_runs_straight_on(
    plan: str, steps: list[str] | None
) -> None:
    assert steps_of(plan) == steps


def test_a_step_says_that_the_scene_lists_the_goal() -> None:
    assert steps_of("g('cat');->True;", seen=True) == ["find the cat in the scene", "go to the cat"]


@pytest.mark.parametrize("family", corpus.STEP_FAMILIES)
def test_a_server_takes_the_steps_of_the_corpus(family: str) -> None:
    rng = Random(3)
    for _ in range(10):
        one = corpus.sample(rng, "train", f"{family}/{corpus.SKETCH}")
        reader = SketchReader()
        steps = [part.text for part in (*reader.feed(one.answer), *reader.end())]
        assert len(steps) > 1
        assert all(grounded(step, one.user) for step in steps)


@pytest.mark.parametrize("form", [corpus.GUIDED, corpus.SKETCH])
def test_forms_of_a_task_are_in_the_split_of_the_task(form: str) -> None:
    one = corpus.sample(Random(4), "test", f"find/{form}")
    assert one.told == "find"
    assert corpus.split_of(("find", one.objects, one.numbers)) == "test"


def test_a_guided_task_has_the_plan_of_the_task_and_its_steps() -> None:
    one = corpus.sample(Random(5), "train", f"arm_stack/{corpus.GUIDED}")
    task, *steps = one.user.split("\n1. ")
    assert task.startswith("Scene: [")
    assert steps
    assert one.answer.endswith("->True;")


@pytest.mark.parametrize(
    ("sketch", "steps"),
    [
        ("1. search for the cat\n2. go to the cat", ["search for the cat", "go to the cat"]),
        ("1. go to the cat", []),
        ("1. go to the cat\n2. burn down every house", []),
    ],
)
def test_steps_that_a_server_refuses_are_not_used(sketch: str, steps: list[str]) -> None:
    assert usable_steps(sketch, "Scene: []\nTask: [A] Search for the cat and go to it.") == steps


def test_a_row_counts_what_steps_repair() -> None:
    failed = Outcome(False, True, True, True, True, True, 30)
    right = Outcome(True, True, True, True, True, False, 10)
    assert table_row("find", [failed, right]) == (
        "| find | 2 | 50.0% | 100.0% | 100.0% | 100.0% | 100.0% | 1 | 100.0% | 50.0% | 20.0 |"
    )
