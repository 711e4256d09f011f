"""Which of several expansions is shown: the confidence of Zhan et al. 2025 (PICE), Eq. 3."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from timely_llm.core.errors import ConfigurationError
from timely_llm.core.step import StepResult
from timely_llm.engines.contract import Tokenizer
from timely_llm.progressive.ensemble.rouge import rouge_1


class Candidate(NamedTuple):
    """An expansion of a sketch by some model.

    Attributes:
        model: name of the model.
        text: the answer.
        logprobs: natural logarithm of the probability of each chosen token.
    """

    model: str
    text: str
    logprobs: Sequence[float]


class CandidateTokens:
    """An expansion as an engine makes it, step by step.

    Args:
        model: name of the engine's model.
        key: of the sequence, added with a `Decoding` that asks for log-probabilities.
        tokenizer: of the engine.

    Attributes:
        ended: whether the model has ended it.
    """

    def __init__(self, model: str, key: str, tokenizer: Tokenizer) -> None:
        self._model = model
        self._key = key
        self._stream = tokenizer.stream()
        self._eos_ids = tokenizer.eos_ids
        self._texts: list[str] = []
        self._logprobs: list[float] = []
        self.ended = False

    def take(self, result: StepResult) -> None:
        """Take the sequence's new tokens of a step; those from an end on are left out."""
        tokens = result.tokens.get(self._key, ())
        for token_id, logprob in zip(tokens, result.logprobs.get(self._key, ()), strict=True):
            self.ended = self.ended or token_id in self._eos_ids
            if not self.ended:
                self._texts.append(self._stream.push(token_id))
                self._logprobs.append(logprob)

    @property
    def candidate(self) -> Candidate:
        """What there is of the expansion."""
        return Candidate(self._model, "".join(self._texts), tuple(self._logprobs))


class LengthNorm(StrEnum):
    """How the length of an expansion becomes a number; the paper does not say how."""

    CAPPED = "capped"
    """Tokens over the expected ones, at most 1: too long an answer gains nothing."""
    NEAR = "near"
    """The smaller of both over the larger one: too long an answer loses, too."""
    OPEN = "open"
    """Tokens over the expected ones."""
    LOGARITHMIC = "logarithmic"
    """The same of the logarithms of both, at most 1."""

    def of(self, tokens: int, expected: float) -> float:
        """Return the normalized length of an expansion with some tokens, expected above 0."""
        match self:
            case LengthNorm.CAPPED:
                return min(tokens / expected, 1.0)
            case LengthNorm.NEAR:
                return min(tokens, expected) / max(tokens, expected)
            case LengthNorm.OPEN:
                return tokens / expected
            case _:
                return min(math.log1p(tokens) / math.log1p(expected), 1.0)


@dataclass(frozen=True)
class Weights:
    """The weights of Eq. 3; the paper names none.

    Attributes:
        probability: a1: of the geometric mean of the tokens' probabilities.
        length: a2: of the normalized length; the rest is the weight of the likeness to the sketch.
        norm: how the length is normalized.

    Raises:
        ConfigurationError: a weight is below 0, or both are more than 1.
    """

    probability: float = 0.5
    length: float = 0.2
    norm: LengthNorm = LengthNorm.CAPPED

    def __post_init__(self) -> None:
        if min(self.probability, self.length) < 0.0 or self.probability + self.length > 1.0:
            raise ConfigurationError(
                "no weight of a confidence may be negative, and their sum must be at most 1, not"
                f" {self.probability} and {self.length}"
            )


DEFAULT_WEIGHTS = Weights()


def confidence(
    one: Candidate, sketch: str, answer_tokens: float, weights: Weights = DEFAULT_WEIGHTS
) -> float:
    """Return the confidence in an expansion, from 0 to 1 unless the length is open: Eq. 3.

    Rouge-1 is its F1.

    Args:
        one: the expansion; without a token its confidence is 0.
        sketch: the text that it expands.
        answer_tokens: expected tokens of the answer, above 0.
        weights: of the three terms.
    """
    if not one.logprobs:
        return 0.0
    probability = math.exp(math.fsum(one.logprobs) / len(one.logprobs))
    length = weights.norm.of(len(one.logprobs), answer_tokens)
    likeness = rouge_1(one.text, sketch).f1
    rest = 1.0 - weights.probability - weights.length
    return weights.probability * probability + weights.length * length + rest * likeness


def most_confident(
    candidates: Iterable[Candidate],
    sketch: str,
    answer_tokens: float,
    weights: Weights = DEFAULT_WEIGHTS,
) -> Candidate:
    """Return the expansion with the largest confidence, of equal ones the first.

    Args:
        candidates: at least one.
        sketch: the text that they expand.
        answer_tokens: expected tokens of the answer, above 0.
        weights: of the three terms.
    """
    return max(candidates, key=lambda one: confidence(one, sketch, answer_tokens, weights))
