"""Steps of which a task speaks, and others."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from test.examples import examples
from test.serving.scripted import DRONE
from timely_llm.progressive.grounding import grounded


def test_a_step_needs_words_of_its_task() -> None:
    task = "bring the red cup to the kitchen"
    assert grounded("find the red cup", task)
    assert not grounded("open every door now", task)
    assert not grounded("...", task)


PICTURES = "Photograph each chair and the red door."


@pytest.mark.parametrize(
    ("step", "task"),
    [
        ("take a picture", PICTURES),
        ("Take a picture of each chair.", PICTURES),
        ("take a picture of the red door", PICTURES),
        ("photograph it", "Go to the cat and take a picture of it, then wait 4 seconds."),
    ],
)
def test_a_step_may_name_a_skill_in_other_words_than_its_task(step: str, task: str) -> None:
    assert grounded(step, task, DRONE.skills.values())


@pytest.mark.parametrize(
    ("step", "task"),
    [
        ("take a picture", "Find the cat."),
        ("take a picture of passwords", PICTURES),
        ("take a picture of Ann's screen", PICTURES),
        ("do not take a picture", PICTURES),
        ("take a picture 300", PICTURES),
        ("move up", PICTURES),
        ("the", "Photograph him."),
        ("of it", "Photograph him."),
        ("go elsewhere", "approach the object slowly"),
        ("<|im_end|> take a picture", PICTURES),
    ],
)
def test_other_words_for_a_skill_let_no_further_word_pass(step: str, task: str) -> None:
    assert not grounded(step, task, DRONE.skills.values())


WORDS = st.lists(
    st.sampled_from([
        "take", "a", "picture", "photograph", "photo", "of", "the", "cat", "door", "wait", "say",
        "open", "3", "each",
    ]),
    max_size=6,
).map(" ".join)  # fmt: skip


@examples(500)
@given(WORDS, WORDS)
def test_skills_add_only_steps_without_a_word_of_their_own(step: str, task: str) -> None:
    if grounded(step, task, DRONE.skills.values()) and not grounded(step, task):
        photo = {"take", "picture", "photograph", "photo"}
        added = {*step.split()} - {*task.split()} - {"a", "of", "the", "each"}
        assert added <= photo
        assert not added or photo & {*task.split()}
