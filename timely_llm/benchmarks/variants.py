"""An engine with more options beside the same engine without them, answering the same tasks."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

import numpy as np

from timely_llm.core.request import PlanRequest
from timely_llm.core.step import StepPlan
from timely_llm.core.time_utility import NORMAL
from timely_llm.engines.contract import Engine
from timely_llm.resources import resource
from timely_llm.robots.tasks import load_task_set
from timely_llm.serving.prompts import SkillSetPrompts
from timely_llm.skills.skill_set import load_skill_set

MOST_TOKENS = 64
TASKS = "config/tasks/drone.yaml"
SKILLS = "config/skill_sets/drone.yaml"


@dataclass
class _Answers:
    """One engine's answers to a batch of tasks.

    Attributes:
        steps_s: seconds of the steps in which all sequences decode.
        tokens: token ids of the answers, by key.
        speculated, accepted: numbers of speculative tokens, and of accepted ones.
    """

    engine: Engine
    prompts: SkillSetPrompts
    steps_s: list[float] = field(default_factory=list)
    tokens: dict[str, list[int]] = field(default_factory=dict)
    speculated: int = 0
    accepted: int = 0

    def begin(self, texts: Sequence[str]) -> None:
        """Compute the prompts of tasks."""
        for text in texts:
            key = str(len(self.tokens))
            request = PlanRequest(key, "benchmark", skill_set="drone", task=text,
                                  time_utility=NORMAL)  # fmt: skip
            token_ids, prefix = self.prompts.build(request)
            left = self.engine.add(key, token_ids, prefix).to_compute
            self.engine.submit(StepPlan(((key, left),)))
            self.tokens[key] = list(self.engine.collect().tokens[key])

    def step(self, keys: Sequence[str]) -> None:
        """Decode the sequences that have not ended."""
        ends = self.engine.tokenizer.eos_ids
        alive = [
            key
            for key in keys
            if len(self.tokens[key]) < MOST_TOKENS and ends.isdisjoint(self.tokens[key])
        ]
        if not alive:
            return
        most = 1 + self.engine.capacity.speculative_tokens
        start_s = time.perf_counter()
        self.engine.submit(StepPlan(tuple((key, most) for key in alive)))
        result = self.engine.collect()
        self.steps_s.append(time.perf_counter() - start_s)
        for key, tokens in result.tokens.items():
            self.tokens[key] += tokens
            self.accepted += len(tokens) - 1
        self.speculated += sum(result.speculative.values())

    def row(self, name: str, batch: int) -> dict[str, Any]:
        """Return the measurements, without the first token of each answer, which prefill makes."""
        tokens = sum(map(len, self.tokens.values())) - len(self.tokens)
        return {
            "engine": name,
            "batch": batch,
            "tokens": tokens,
            "steps": len(self.steps_s),
            "step_ms": median(self.steps_s) * 1e3,
            "tokens_per_second": tokens / sum(self.steps_s),
            "guessed": self.speculated,
            "right": self.accepted / self.speculated if self.speculated else 0.0,
        }


def rows(
    engines: Mapping[str, Callable[[], Engine]], batches: Sequence[int] = (1, 8), groups: int = 16
) -> list[dict[str, Any]]:
    """Answer the same tasks on all engines, in alternate steps, so that other load hits all alike.

    Args:
        engines: makers of the engines, by their names in the rows.
        batches: tasks that are answered together.
        groups: batches of tasks.

    Returns:
        A row for each engine and batch: tokens after the first of each answer, steps in which all
        sequences decode, median milliseconds of such a step, tokens a second, speculative tokens,
        and the accepted share of them.

    Raises:
        TimelyError: an engine cannot be made, or cannot run with these arguments.
    """
    found = []
    made: dict[str, tuple[Engine, SkillSetPrompts]] = {}
    try:
        for name, make in engines.items():
            engine = make()
            made[name] = engine, SkillSetPrompts(engine)
            made[name][1].register(load_skill_set(resource(SKILLS)))
        tasks = load_task_set(resource(TASKS))
        for batch in batches:
            rng = np.random.default_rng(0)
            answers = {name: _Answers(*pair) for name, pair in made.items()}
            for group in range(1 + groups):
                if group == 1:  # group 0 warms up
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
    keys = list(answers[0].tokens)[-len(texts) :]
    for _ in range(MOST_TOKENS):
        for answer in answers:
            answer.step(keys)
    for answer in answers:
        for key in keys:
            answer.engine.remove(key)
