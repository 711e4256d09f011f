"""A latency predictor fitted to measured steps by least squares (Huang et al. 2025, §4.2)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from timely_llm.core.errors import ConfigurationError
from timely_llm.policies.annealing.latency import BatchTime, LatencyPredictor


class TimedStep(NamedTuple):
    """One step of an engine with requests of about equal length.

    Attributes:
        rows: sequences in the step.
        prompt_tokens: prompt tokens that it computed, of all sequences; 0: it decoded.
        context_tokens: tokens that its decoding sequences attended to, of all sequences.
        seconds: time of the step.
    """

    rows: int
    prompt_tokens: int
    context_tokens: int
    seconds: float


def fit_latency(steps: Iterable[TimedStep]) -> LatencyPredictor:
    """Return the predictor with the least squared error over measured steps.

    A step that both computes prompts and decodes belongs to neither equation and is left out. A
    batch counts with the mean length of its sequences.

    Raises:
        ConfigurationError: a step has an impossible value, or the steps of a phase do not determine
            its four coefficients.
    """
    prefill: list[tuple[int, float, float]] = []
    decode: list[tuple[int, float, float]] = []
    for step in steps:
        _check(step)
        if not step.prompt_tokens:
            decode.append((step.rows, step.context_tokens / step.rows, step.seconds))
        elif not step.context_tokens:
            prefill.append((step.rows, step.prompt_tokens / step.rows, step.seconds))
    return LatencyPredictor(_fitted("prefill", prefill), _fitted("decode", decode))


def _check(step: TimedStep) -> None:
    if step.rows < 1 or min(step.prompt_tokens, step.context_tokens) < 0:
        raise ConfigurationError(
            f"a measured step has at least 1 row and no negative number of tokens, not {step}"
        )
    if not (math.isfinite(step.seconds) and step.seconds >= 0.0):
        raise ConfigurationError(
            f"the seconds of a step must be finite and from 0 on, not {step.seconds}"
        )


def _fitted(phase: str, measured: Sequence[tuple[int, float, float]]) -> BatchTime:
    """Return the coefficients of a phase from (rows, tokens of a sequence, seconds)."""
    inputs = np.array([(b * length, b, length, 1.0) for b, length, _ in measured]).reshape(-1, 4)
    # Columns of one size, so that rank and rounding are judged alike for all of them.
    sizes = np.maximum(np.abs(inputs).max(axis=0, initial=0.0), 1e-12)
    seconds = np.array([took_s for *_, took_s in measured])
    found, _, rank, _ = np.linalg.lstsq(inputs / sizes, seconds, rcond=1e-9)
    if rank < 4:
        raise ConfigurationError(
            f"{len(measured)} measured steps do not determine the time of {phase}: at least 4 are"
            " needed, with two numbers of rows and two lengths for each of them"
        )
    return BatchTime(*(float(one) for one in found / sizes))
