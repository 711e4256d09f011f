"""What an answer is worth beside the cloud's own: Rouge-1 of its words, without a judge."""

from __future__ import annotations

from functools import lru_cache

from timely_llm.experiments.virtual.sketches.questions import LENGTHS, BenchQuestion
from timely_llm.experiments.virtual.sketches.wording import HARD, SPEAKERS, spoken, wording
from timely_llm.progressive.rouge import rouge_1

_SAMPLES = 6


@lru_cache(maxsize=100_000)
def likeness(seed: int, tokens: int, sketch_tokens: int, category: str, model: str) -> float:
    """Return the Rouge-1 F1 of a small model's answer and the cloud's direct one.

    Args:
        seed: of the words.
        tokens: of the answer.
        sketch_tokens: of the sketch that the model expands; 0: it answers alone.
        category: of the question.
        model: name; empty: the cloud's: an answer is like itself.
    """
    if not model:
        return 1.0
    made = wording(seed, tokens, sketch_tokens, category)
    return rouge_1(spoken(made, SPEAKERS[model], category, seed).text, made.text).f1


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
