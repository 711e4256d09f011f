"""A cloud of this machine that plans a task and says the plan's steps in words.

    PYTHONPATH=. python -m tools.tiny_planner.planning_cloud MODEL

It stands in for a model that sketches as well as it plans, without a training in sketches. It has
OpenAI's interface and prints its URL. It knows the skill sets of the corpus alone.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from timely_llm.core.request import ChatMessage, Result, StreamChunk, StreamRequest, StreamResult
from timely_llm.demo.stand_in import AnswerQueue, Answers, CloudStandIn
from timely_llm.engines.contract import Engine
from timely_llm.engines.registry import make_engine
from timely_llm.experiments.virtual.sketches.recorded_plans import tokens_of
from timely_llm.progressive.plan import guided_task
from tools.tiny_planner import corpus
from tools.tiny_planner.batches import system_texts
from tools.tiny_planner.step_words import steps_of

PACE = "a100x4-llama3-70b"
_GOAL = re.compile(r"\bg\('([^']*)'\)")


def sketch_of(task: str, plan: str) -> str:
    """Return the steps of a plan as a numbered list; empty: it does not run straight on."""
    scene = task.partition("]")[0].removeprefix("Scene: [").split(", ")
    goals = _GOAL.findall(plan)
    steps = steps_of(plan, len(goals) == 1 and goals[0] in scene)
    return guided_task("", steps).lstrip("\n") if steps else ""


class PlanningAnswers(Answers):
    """Answers a question for a sketch by a plan, and says its steps at the end of it."""

    def __init__(self, make_engine: Callable[[], Engine], most: int) -> None:
        texts = system_texts()
        self._robots = {
            texts[f"{robot} {corpus.SKETCH}"]: texts[robot] for robot in ("drone", "arm")
        }
        self._tasks: dict[str, str] = {}
        self._plans: dict[str, str] = {}
        super().__init__(make_engine, most)

    def begin(self, request: StreamRequest) -> AnswerQueue:
        """Begin a plan of the task for which a sketch is asked."""
        system, user = request.messages[0], request.messages[-1]
        messages = (ChatMessage("system", self._robots[system.content]), user)
        self._tasks[request.request_id], self._plans[request.request_id] = user.content, ""
        return super().begin(replace(request, messages=messages))

    def chunk(self, chunk: StreamChunk) -> None:
        """Keep a piece of the plan."""
        self._plans[chunk.request_id] += chunk.text

    def ended(self, result: Result) -> None:
        """Say the steps of the plan."""
        task, plan = self._tasks.pop(result.request_id), self._plans.pop(result.request_id)
        answer = self._answers.get(result.request_id)
        if isinstance(result, StreamResult) and answer is not None:
            sketch = sketch_of(task, plan)
            answer.put(StreamChunk(result.request_id, result.agent, 0, sketch, True))
            result = replace(result, text=sketch, generated_tokens=len(tokens_of(sketch)))
        super().ended(result)


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description="Run a cloud that says a plan's steps in words.")
    parser.add_argument("model", type=Path)
    a = parser.parse_args()
    cloud = CloudStandIn(
        lambda: make_engine("transformers", model=str(a.model), pace=PACE), "stand-in",
        answers=PlanningAnswers,
    )  # fmt: skip
    cloud.show_and_serve()


if __name__ == "__main__":
    main()
