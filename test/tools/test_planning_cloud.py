"""A cloud that says the steps of its plan in words."""

from __future__ import annotations

from pathlib import Path

import pytest

from timely_llm.core.request import ChatMessage, StreamChunk, StreamRequest, StreamResult
from timely_llm.progressive.plan import steps_question
from timely_llm.skills.skill_set import load_skill_set
from tools.tiny_planner.batches import SKILL_SETS
from tools.tiny_planner.planning_cloud import PlanningAnswers, sketch_of

MODEL = Path(__file__).parents[2] / "models" / "tiny_planner"
TASK = "Scene: [cup]\nTask: [A] Go forward 50 cm, turn right 90 degrees and take a picture."
STEPS = "1. move forward 50 cm\n2. turn right 90 degrees\n3. take a picture"


@pytest.mark.parametrize(
    ("plan", "sketch"),
    [
        ("mf(50);tc(90);tp();->True;", STEPS),
        ("g('cup');->True;", "1. find the cup in the scene\n2. go to the cup"),
        ("g('cat');tp();->True;", "1. go to the cat\n2. take a picture"),
        ("4{mf(100);tc(90);};->True;", ""),
    ],
)  # fmt: skip
def test_a_sketch_has_the_steps_of_a_plan(plan: str, sketch: str) -> None:
    assert sketch_of(TASK, plan) == sketch


def test_the_embedded_model_answers_a_question_for_steps() -> None:
    pytest.importorskip("transformers")
    from timely_llm.engines.registry import make_engine

    answers = PlanningAnswers(lambda: make_engine("transformers", model=str(MODEL)), 4)
    try:
        chat = steps_question(TASK, load_skill_set(SKILL_SETS["drone"]))
        assert isinstance(chat[0], ChatMessage)
        answer = answers.begin(StreamRequest("q", "cloud", chat, max_tokens=64))
        chunk, result = answer.get(timeout=60.0), answer.get(timeout=60.0)
    finally:
        answers.close()
    assert isinstance(chunk, StreamChunk)
    assert isinstance(result, StreamResult)
    assert chunk.text == result.text == STEPS
    assert result.generated_tokens > 10
