"""Predicted lengths of whole answers, by type of task (Huang et al. 2025, §4.2 and §5.1)."""

from __future__ import annotations

import math
from collections.abc import Collection, Hashable
from enum import StrEnum
from random import Random
from typing import Protocol

from timely_llm.core.generation import Generation, State
from timely_llm.policies.lengths import CLASSES, TYPICAL, AnswerLengths, task_type


class LengthModel(StrEnum):
    """How the length of an answer is predicted.

    `gaussian` draws it from a normal distribution, as the paper does. `quantile` is this package's:
    the median of the lengths that were seen.
    """

    GAUSSIAN = "gaussian"
    QUANTILE = "quantile"


class OutputLengths(Protocol):
    """Predicts how many tokens a generation will have."""

    def expected(self, generation: Generation) -> int:
        """Return the predicted tokens of the whole answer, at least 1."""
        ...

    def watch(self, generations: Collection[Generation]) -> None:
        """Learn from generations that have ended since the last call."""
        ...


class Gaussian:
    """Mean and deviation of the lengths of a type of task, updated with each one (Welford 1962).

    Attributes:
        count: lengths seen.
        mean: of them.
    """

    def __init__(self) -> None:
        self.count = 0
        self.mean = 0.0
        self._squares = 0.0

    @property
    def deviation(self) -> float:
        """The standard deviation; 0 before a second length."""
        return math.sqrt(self._squares / (self.count - 1)) if self.count > 1 else 0.0

    def observe(self, tokens: int) -> None:
        """Learn from a length."""
        self.count += 1
        step = tokens - self.mean
        self.mean += step / self.count
        self._squares += step * (tokens - self.mean)


class LearnedLengths:
    """Lengths learned from the generations that end.

    Until two lengths of a type of task (see `task_type`) were seen, its requests count with the
    most tokens that they declare.

    Args:
        model: how a length is predicted.
        draw: source of random numbers.
    """

    def __init__(self, model: LengthModel, draw: Random) -> None:
        self._model, self._draw = model, draw
        self._gaussians: dict[Hashable, Gaussian] = {}
        self._quantiles = AnswerLengths()
        self._watched: dict[str, Generation] = {}

    def expected(self, generation: Generation) -> int:
        """Return the predicted tokens of the whole answer, at least 1."""
        of_class, bound = task_type(generation.request), max(generation.max_tokens, 1)
        if self._model is LengthModel.QUANTILE:
            return self._quantiles.to_go(of_class, 0, bound, TYPICAL, enough=2)
        known = self._gaussians.get(of_class)
        if known is None or known.count < 2:
            return bound
        return min(max(round(self._draw.gauss(known.mean, known.deviation)), 1), bound)

    def observe(self, of_class: Hashable, tokens: int) -> None:
        """Learn from an answer with `tokens` tokens."""
        if self._model is LengthModel.QUANTILE:
            self._quantiles.observe(of_class, tokens)
            return
        known = self._gaussians.pop(of_class, None) or Gaussian()
        if len(self._gaussians) == CLASSES:
            del self._gaussians[next(iter(self._gaussians))]
        self._gaussians[of_class] = known  # now the last one
        known.observe(tokens)

    def watch(self, generations: Collection[Generation]) -> None:
        """Learn from generations that have ended since the last call."""
        here = {generation.key: generation for generation in generations}
        for key, one in self._watched.items():
            if here.get(key) is one:
                continue
            if one.state not in (State.ENDED, State.EXECUTING):
                here.setdefault(key, one)
            elif one.token_ids:
                self.observe(task_type(one.request), len(one.token_ids))
        self._watched = here
