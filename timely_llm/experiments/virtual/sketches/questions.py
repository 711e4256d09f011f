"""Questions with answers of known length: a workload like the benchmarks of Zhan et al. 2025."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

LENGTHS: Mapping[str, float] = {
    "generic": 450.0, "knowledge": 550.0, "roleplay": 500.0, "fermi": 500.0, "coding": 450.0,
    "math": 300.0, "writing": 650.0, "reasoning": 300.0, "stem": 600.0, "humanities": 700.0,
}  # fmt: skip
"""Mean tokens of an answer, by the categories of Table IV.

Their mean of 500 is the paper's (§II-B); it has no length of a category.
"""

SPREAD = 0.35
"""Standard deviation of the logarithm of a length within its category."""

PROMPT_TOKENS = 60
SENTENCE_TOKENS = 12
"""Tokens of a sentence of a sketch."""

QUESTIONS = 80
"""Questions of a run, as many as MT-bench and Vicuna-bench have each."""


@dataclass(frozen=True)
class BenchQuestion:
    """A question of one person.

    Attributes:
        key: unique in its run.
        category: one of `LENGTHS`.
        at_s: when it is asked.
        tokens: of its whole answer.
        error: predicted over true length, as the cloud's model predicts it.
        seed: of its words, and of how they divide into parts.
    """

    key: str
    category: str
    at_s: float
    tokens: int
    error: float
    seed: int

    def parts(self, sketch_tokens: int) -> list[tuple[int, int]]:
        """Return tokens of each sentence of a sketch, and tokens to which it is expanded.

        Longer sentences are expanded to more tokens, with some noise.

        Args:
            sketch_tokens: of the whole sketch, from 1 on.
        """
        rng = np.random.default_rng((self.seed, 1))
        count = max(round(sketch_tokens / SENTENCE_TOKENS), 1)
        short = _divided(sketch_tokens, rng.uniform(0.6, 1.4, count))
        noise = rng.lognormal(0.0, 0.25, count)
        whole = _divided(max(self.tokens, count), np.maximum(short, 1) * noise)
        return list(zip(short, whole, strict=True))


def _divided(total: int, weights: np.ndarray) -> list[int]:
    """Return whole numbers in proportion to weights that add up to a total."""
    ends = np.rint(np.cumsum(weights) / weights.sum() * total).astype(int)
    return [int(n) for n in np.diff(ends, prepend=0)]


def questions(
    rpm: float, seed: int, count: int = QUESTIONS, bias: float = 1.0, spread: float = 0.1
) -> list[BenchQuestion]:
    """Return questions at Poisson times, of categories in turn.

    Args:
        rpm: questions a minute.
        seed: of times and lengths.
        count: their number.
        bias: predicted over true length in the mean, as the cloud's model predicts it.
        spread: standard deviation of the logarithm of predicted over true length.
    """
    rng = np.random.default_rng(seed)
    at_s = np.cumsum(rng.exponential(60.0 / rpm, count))
    names = rng.permutation([list(LENGTHS)[place % len(LENGTHS)] for place in range(count)])
    factors = np.exp(rng.normal(-(SPREAD**2) / 2, SPREAD, count))
    errors = bias * np.exp(rng.normal(0.0, spread, count))
    return [
        BenchQuestion(
            f"q{place}", str(name), float(at_s[place]),
            max(int(LENGTHS[name] * factors[place]), 20), float(errors[place]), 1000 * seed + place,
        )
        for place, name in enumerate(names)
    ]  # fmt: skip
