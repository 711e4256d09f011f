"""Data, preference scores and losses that tune a model to sketch: not run at scale.

Zhan et al. 2025 (PICE), §IV-D, tunes a model of 70 billion parameters in three steps: on sketches
(SFT), a reward model on pairs of sketches, and the model by reinforcement with a KL penalty. What
needs no such model is here: the examples, the score, the preferences, and both objectives. Tests
run them on tiny data; no model was tuned with them.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from timely_llm.progressive.ensemble.rouge import rouge_1

SKETCH_PROMPT = (
    "Answer in short sentences that keep the meaning and drop the grammar, one on each line."
)
"""This package's wording; the paper prints none for the sketch."""

LENGTH_WEIGHT, LIKENESS_WEIGHT = 5.0, 1.0
"""b1 and b2; the paper names none. A sketch of 10 words for one of 20 is worth 0.25 of Rouge-1."""

Vector = NDArray[np.float64]


class SketchPair(NamedTuple):
    """Two sketches of one answer.

    Attributes:
        question: x.
        better, worse: r_w and r_l: the sketches with the higher and the lower score.
    """

    question: str
    better: str
    worse: str


def sft_lines(examples: Iterable[tuple[str, str]]) -> Iterator[str]:
    """Yield a line of JSON in the chat format of fine-tuning for each question and its sketch."""
    for question, sketch in examples:
        messages = [
            {"role": "system", "content": SKETCH_PROMPT},
            {"role": "user", "content": question},
            {"role": "assistant", "content": sketch},
        ]
        yield json.dumps({"messages": messages}, ensure_ascii=False)


def sketch_score(
    sketch: str,
    expanded: str,
    answer: str,
    length_weight: float = LENGTH_WEIGHT,
    likeness_weight: float = LIKENESS_WEIGHT,
) -> float:
    """Return b1 / l_r + b2 * Rouge-1(y', y): short sketches that expand to the answer are best.

    Args:
        sketch: r; its length is its words. An empty one has the score minus infinity.
        expanded: y': what the base model makes of the sketch.
        answer: y: the whole answer of the tuned model.
        length_weight: b1.
        likeness_weight: b2.
    """
    words = len(sketch.split())
    if not words:
        return -math.inf
    return length_weight / words + likeness_weight * rouge_1(expanded, answer).f1


def preferences(
    drawn: Iterable[tuple[str, str, Sequence[tuple[str, str]]]],
    length_weight: float = LENGTH_WEIGHT,
    likeness_weight: float = LIKENESS_WEIGHT,
) -> Iterator[SketchPair]:
    """Yield the labeled pairs; two sketches of equal score are no pair.

    Args:
        drawn: question, answer, and two sketches of it, each with what it was expanded to.
        length_weight: b1.
        likeness_weight: b2.
    """
    for question, answer, sketches in drawn:
        scores = [
            sketch_score(sketch, expanded, answer, length_weight, likeness_weight)
            for sketch, expanded in sketches
        ]
        better, worse = scores.index(max(scores)), scores.index(min(scores))
        if scores[better] > scores[worse]:
            yield SketchPair(question, sketches[better][0], sketches[worse][0])


def reward_loss(better: Vector, worse: Vector) -> float:
    """Return -mean log sigmoid(R(x, r_w) - R(x, r_l)), without overflow.

    Args:
        better: reward of the better sketch of each pair.
        worse: reward of the other one.
    """
    return float(np.mean(np.logaddexp(0.0, worse - better)))


def reward_loss_slope(better: Vector, worse: Vector) -> Vector:
    """Return the derivative of `reward_loss` by each `better`; that by `worse` is its negative."""
    return -np.exp(-np.logaddexp(0.0, better - worse)) / len(better)


def divergence(policy: Vector, reference: Vector) -> float:
    """Return an estimate of KL(policy || reference) from one sketch that the policy drew.

    Args:
        policy: log-probability of each token under the tuned model.
        reference: the same under the model before.
    """
    return float(np.sum(policy - reference))


def objective(rewards: Vector, divergences: Vector, gamma: float) -> float:
    """Return J: the mean of (1 - gamma) * R - gamma * KL over sketches that the policy drew.

    Args:
        rewards: R of each sketch.
        divergences: KL of each, as `divergence` estimates it.
        gamma: weight of the KL penalty, from 0 to 1.
    """
    return float(np.mean((1.0 - gamma) * rewards - gamma * divergences))
