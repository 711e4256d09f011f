"""An engine with more options beside the same engine without them, answering the same tasks."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

import numpy as np

from timely_llm.core.request import PlanRequest
from timely_llm.core.time_utility import NORMAL
from timely_llm.engines.contract import Engine
from timely_llm.policies.contract import StepPlan
from timely_llm.resources import resource
from timely_llm.robots.tasks import load_task_set
from timely_llm.serving.prompts import Prompts
from timely_llm.skills.skill_set import load_skill_set

MOST_TOKENS = 64
TASKS = "config/tasks/drone.yaml"
SKILLS = "config/skill_sets/drone.yaml"


@dataclass
class _Answers:
    """What one engine does with a batch of tasks.

    Attributes:
        steps_s: seconds of the steps in which everybody decodes.
        said: the answers.
        guessed, right: tokens that were guessed, and those of them that were said.
    """

    engine: Engine
    prompts: Prompts
    steps_s: list[float] = field(default_factory=list)
    said: dict[str, list[int]] = field(default_factory=dict)
    guessed: int = 0
    right: int = 0

    def begin(self, texts: Sequence[str]) -> None:
        """Compute the prompts of tasks."""
        for text in texts:
            key = str(len(self.said))
            request = PlanRequest(key, "benchmark", skill_set="drone", task=text,
                                  time_utility=NORMAL)  # fmt: skip
            token_ids, prefix = self.prompts.build(request)
            left = self.engine.add(key, token_ids, prefix)
            self.engine.submit(StepPlan(((key, left),)))
            self.said[key] = list(self.engine.collect().tokens[key])

    def step(self, keys: Sequence[str]) -> None:
        """Let those of these sequences decode that have not ended."""
        ends = self.engine.tokenizer.eos_ids
        alive = [
            key
            for key in keys
            if len(self.said[key]) < MOST_TOKENS and ends.isdisjoint(self.said[key])
        ]
        if not alive:
            return
        most = 1 + self.engine.capacity.guesses
        start_s = time.perf_counter()
        self.engine.submit(StepPlan(tuple((key, most) for key in alive)))
        result = self.engine.collect()
        self.steps_s.append(time.perf_counter() - start_s)
        for key, tokens in result.tokens.items():
            self.said[key] += tokens
            self.right += len(tokens) - 1
        self.guessed += sum(result.guessed.values())

    def row(self, name: str, batch: int) -> dict[str, Any]:
        """Return what was measured; the first token of each answer comes of its prompt."""
        tokens = sum(map(len, self.said.values())) - len(self.said)
        return {
            "engine": name,
            "batch": batch,
            "tokens": tokens,
            "steps": len(self.steps_s),
            "step_ms": median(self.steps_s) * 1e3,
            "tokens_per_second": tokens / sum(self.steps_s),
            "guessed": self.guessed,
            "right": self.right / self.guessed if self.guessed else 0.0,
        }


def rows(
    engines: Mapping[str, Callable[[], Engine]], batches: Sequence[int] = (1, 8), groups: int = 16
) -> list[dict[str, Any]]:
    """Let engines answer the same tasks, a step of the one after a step of the other.

    Whatever else the machine does so hits both alike.

    Args:
        engines: how each is made, by its name in the rows.
        batches: tasks that are answered together.
        groups: batches of tasks.

    Returns:
        A row for each engine and batch: tokens after the first of each answer, steps in which
        everybody decodes, median milliseconds of such a step, tokens a second, guessed tokens, and
        the share of them that was right.

    Raises:
        TimelyError: an engine cannot be made, or used so.
    """
    found = []
    made: dict[str, tuple[Engine, Prompts]] = {}
    try:
        for name, make in engines.items():
            engine = make()
            made[name] = engine, Prompts(engine)
            made[name][1].register(load_skill_set(resource(SKILLS)))
        tasks = load_task_set(resource(TASKS))
        for batch in batches:
            rng = np.random.default_rng(0)
            answers = {name: _Answers(*pair) for name, pair in made.items()}
            for group in range(1 + groups):
                if group == 1:  # the first one warms up
                    answers = {name: _Answers(*pair) for name, pair in made.items()}
                texts = [tasks.draw(urgent=False, rng=rng).text for _ in range(batch)]
                _answer(list(answers.values()), texts)
            found += [answer.row(name, batch) for name, answer in answers.items()]
    finally:
        for engine, _ in made.values():
            engine.close()
    return found


def _answer(answers: Sequence[_Answers], texts: Sequence[str]) -> None:
    """Answer a batch of tasks on each engine, in turns."""
    for answer in answers:
        answer.begin(texts)
    keys = list(answers[0].said)[-len(texts) :]
    for _ in range(MOST_TOKENS):
        for answer in answers:
            answer.step(keys)
    for answer in answers:
        for key in keys:
            answer.engine.remove(key)
