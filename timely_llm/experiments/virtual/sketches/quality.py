"""What an answer is worth beside the cloud's own: Rouge-1 of its words, without a judge."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from timely_llm.experiments.virtual.sketches.questions import LENGTHS, BenchQuestion
from timely_llm.experiments.virtual.sketches.wording import HARD, SPEAKERS, spoken, wording
from timely_llm.progressive.ensemble.rouge import rouge_1

_SAMPLES = 6


class SaidOpening(NamedTuple):
    """The opening that an edge wrote before an answer.

    Attributes:
        model: that wrote it.
        tokens: of it.
    """

    model: str
    tokens: int


@lru_cache(maxsize=100_000)
def likeness(
    seed: int, tokens: int, sketch_tokens: int, category: str, model: str,
    opening: SaidOpening | None = None,
) -> float:  # fmt: skip
    """Return the Rouge-1 F1 of a small model's answer and the cloud's direct one.

    Args:
        seed: of the words.
        tokens: of the answer.
        sketch_tokens: of the sketch that the model expands; 0: it answers alone.
        category: of the question.
        model: name; empty: the cloud's: an answer is like itself.
        opening: words of a small model before the answer, written without a sketch; None: there
            are none.
    """
    if not (model or opening):
        return 1.0
    made = wording(seed, tokens, sketch_tokens, category)
    text = spoken(made, SPEAKERS[model], category, seed).text if model else made.text
    if opening is not None:
        alone = wording(seed, tokens, 0, category)
        said = spoken(alone, SPEAKERS[opening.model], category, seed).text.split()
        text = " ".join([*said[: opening.tokens], text])
    return rouge_1(text, made.text).f1


def edge_quality(question: BenchQuestion, model: str) -> float:
    """Return the likeness of a small model's answer without a sketch."""
    return likeness(question.seed, question.tokens, 0, question.category, model)


@lru_cache(maxsize=1000)
def expected_quality(model: str, share: float, hard: bool) -> float:
    """Return the mean likeness of a model's answers to sketches, measured on other questions.

    Args:
        model: name.
        share: tokens of the sketch over those of the answer; 0: no sketch.
        hard: questions of categories in which sketches lose meaning.
    """
    names = [name for name in LENGTHS if (name in HARD) == hard]
    found = [
        likeness(10**6 + place, 500, round(share * 500), name, model)
        for name in names
        for place in range(_SAMPLES)
    ]
    return sum(found) / len(found)
