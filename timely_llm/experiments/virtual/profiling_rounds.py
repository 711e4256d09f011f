"""Profiling rounds on a simulated engine: batches of equal requests (Huang et al. 2025, §5.1)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from random import Random

from timely_llm.core.clock import VirtualClock
from timely_llm.core.step import StepPlan
from timely_llm.engines.sequences import EngineLimits
from timely_llm.engines.simulated import Profile, SimulatedEngine
from timely_llm.policies.annealing.fit import TimedStep

_WORD = "word"
_LIMITS = EngineLimits(
    max_model_len=8192, kv_tokens=10_000_000, max_rows=256, max_step_tokens=100_000
)


@dataclass(frozen=True)
class Rounds:
    """Batches that are profiled: each number of rows with each length of prompts.

    Attributes:
        rows: requests of a batch.
        lengths: tokens of each of its prompts.
        tokens: decode steps after the prompts.
    """

    rows: tuple[int, ...]
    lengths: tuple[int, ...]
    tokens: int

    @property
    def steps(self) -> int:
        """Number of steps."""
        return len(self.rows) * len(self.lengths) * (1 + self.tokens)


MANY = Rounds((1, 2, 4, 8, 16, 32), (100, 250, 500, 1000, 1900), 20)
"""The paper's 1 to 32 rows (§5.1), with lengths below the 2,000 tokens where times are linear."""

FEW = Rounds((1, 4), (100, 500), 3)
"""Hardly more than the four steps of a phase that determine its coefficients."""


@lru_cache(maxsize=8)
def timed_steps(profile: Profile, rounds: Rounds) -> tuple[TimedStep, ...]:
    """Return the steps that a simulated engine makes for some rounds.

    All prompts of a batch are computed in its first step; each further one decodes a token of each
    row.

    Args:
        profile: step times of the engine.
        rounds: the batches.
    """
    steps: list[TimedStep] = []
    for rows in rounds.rows:
        for length in rounds.lengths:
            steps += _batch(profile, rows, length, rounds.tokens)
    return tuple(steps)


def _batch(profile: Profile, rows: int, length: int, tokens: int) -> list[TimedStep]:
    engine = SimulatedEngine(
        profile, lambda key, text: [_WORD] * (tokens + 1), VirtualClock(), _LIMITS
    )
    prompt = engine.tokenizer.ids([_WORD] * length)
    keys = [str(row) for row in range(rows)]
    for key in keys:
        engine.add(key, prompt)
    steps = [TimedStep(rows, rows * length, 0, _seconds(engine, keys, length))]
    for number in range(tokens):
        context = rows * (length + number)
        steps.append(TimedStep(rows, 0, context, _seconds(engine, keys, 1)))
    engine.close()
    return steps


def _seconds(engine: SimulatedEngine, keys: Sequence[str], tokens: int) -> float:
    engine.submit(StepPlan(tuple((key, tokens) for key in keys)))
    return engine.collect().duration_s


def noisy(steps: Sequence[TimedStep], noise: float, draw: Random) -> list[TimedStep]:
    """Return the steps as a clock with noise measures them.

    Args:
        steps: steps with their true times.
        noise: standard deviation of a measured time, as a share of the true one.
        draw: source of random numbers.
    """
    return [
        step._replace(seconds=step.seconds * max(1.0 + draw.gauss(0.0, noise), 0.0))
        for step in steps
    ]


def batch_s(profile: Profile, rows: int, input_tokens: int, output_tokens: int) -> float:
    """Return the seconds of a batch of equal requests.

    The step of the prompts has the first token of each answer, so one decode step fewer than tokens
    follows.

    Args:
        profile: step times of the engine.
        rows: requests of the batch.
        input_tokens: tokens of each prompt.
        output_tokens: tokens of each answer.
    """
    seconds = profile.step_s(0, rows * input_tokens)
    for number in range(output_tokens - 1):
        seconds += profile.step_s(rows, 0, rows * (input_tokens + number))
    return seconds
