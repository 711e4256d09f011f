"""Steps in plain words: each belongs to its plan, and a server takes them."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from timely_llm.progressive.grounding import grounded
from timely_llm.progressive.sketch import SketchReader
from timely_llm.skills.skill_set import load_skill_set
from tools.tiny_planner import corpus
from tools.tiny_planner.batches import SKILL_SETS
from tools.tiny_planner.evaluate_help import (
    HEADER,
    Outcome,
    Share,
    as_json,
    table_row,
    usable_steps,
)
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
        assert steps
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


def test_a_task_that_names_a_skill_in_other_words_gets_its_steps() -> None:
    task = "Scene: []\nTask: [A] Photograph the door and the cat."
    sketch = "1. take a picture of the door\n2. take a picture of the cat"
    skills = load_skill_set(SKILL_SETS["drone"]).skills.values()
    assert len(usable_steps(sketch, task, skills)) == 2


FAILED = Outcome(False, True, True, True, True, True, True, 30)
RIGHT = Outcome(True, True, True, True, True, True, False, 10)
SPOILED = Outcome(True, False, False, True, False, True, True, 20)


def test_a_row_counts_what_steps_repair_and_what_they_spoil() -> None:
    assert table_row("find", [FAILED, RIGHT]) == (
        "| find | 2 | 50.0% | 100.0% | 100.0% | 100.0% | 100.0% | 100.0% | 1 | 100.0% | 0.0% |"
        " 50.0% | 20.0 |"
    )
    assert len(HEADER.splitlines()[0].split("|")) == len(table_row("find", [RIGHT]).split("|"))
    found = as_json([FAILED, RIGHT, SPOILED])
    assert found["spoiled"] == {
        "share": 0.5, "tasks": 2, "interval": list(Share(1, 2).interval),
    }  # fmt: skip
    assert found["cloud_tokens"] == 20.0


def test_a_share_has_an_interval_that_is_certain_of_nothing() -> None:
    low, high = Share(50, 50).interval
    assert (round(low, 4), round(high, 4)) == (0.9287, 1.0), (
        "Wilson's, not that of a normal distribution"
    )
    assert [round(one, 4) for one in Share(41, 50).interval] == [0.6920, 0.9023]
    assert Share(0, 0).interval == (0.0, 1.0)
    assert Share(0, 0).as_json()["share"] is None


@given(st.integers(1, 500), st.integers(0, 500))
def test_a_share_lies_in_its_interval(of: int, count: int) -> None:
    share = Share(min(count, of), of)
    low, high = share.interval
    assert 0.0 <= low <= share.count / of + 1e-9
    assert share.count / of - 1e-9 <= high <= 1.0
