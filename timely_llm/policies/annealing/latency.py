"""Predicted seconds of a whole request in a batch, and their fit (Huang et al. 2025, §4.2)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from timely_llm.core.errors import ConfigurationError


@dataclass(frozen=True)
class BatchTime:
    """Seconds of one phase, `alpha * b * l + beta * b + gamma * l + delta` (Eq. 14 and 15).

    The batch has b requests of l tokens. The paper measured that it is linear below 2,000 tokens.

    Attributes:
        alpha: seconds for each token of each request.
        beta: seconds for each request.
        gamma: seconds for each token, whatever the number of requests.
        delta: seconds of an empty batch.
    """

    alpha: float
    beta: float
    gamma: float
    delta: float

    def seconds(self, batch: int, tokens: float) -> float:
        """Return the seconds of a batch of some requests with some tokens each."""
        return (self.alpha * batch + self.gamma) * tokens + self.beta * batch + self.delta


@dataclass(frozen=True)
class LatencyPredictor:
    """Predicted seconds of a request that waits for nothing.

    Attributes:
        prefill: time of a prompt (Eq. 14).
        decode: time of a token by its context (Eq. 15).
    """

    prefill: BatchTime
    decode: BatchTime

    @classmethod
    def of_step(cls, coefficients: Sequence[float]) -> LatencyPredictor:
        """Return the predictor with the coefficients of a `StepTime`.

        A step reads the context of each row, so its seconds for a context token are alpha of
        decode, and both gammas are 0.

        Args:
            coefficients: seconds for (a step, a decode row, a prefill token, a context token).
        """
        base_s, row_s, prefill_token_s, context_token_s = coefficients
        return cls(
            BatchTime(prefill_token_s, 0.0, 0.0, base_s),
            BatchTime(context_token_s, row_s, 0.0, base_s),
        )

    def prefill_s(self, batch: int, input_tokens: float) -> float:
        """Return the seconds until the prompts of a batch are computed (Eq. 14 and 18)."""
        return self.prefill.seconds(batch, input_tokens)

    def decode_s(self, batch: int, input_tokens: float, output_tokens: float) -> float:
        """Return the seconds of all output tokens (Eq. 16).

        The sum over k of the time of a token with a context of `input_tokens + k` has a closed
        form, since the context grows by one token each time.
        """
        contexts = output_tokens * input_tokens + output_tokens * (output_tokens + 1) / 2
        of_token, of_step = self.decode, self.decode.beta * batch + self.decode.delta
        return (of_token.alpha * batch + of_token.gamma) * contexts + of_step * output_tokens

    def exec_s(self, batch: int, input_tokens: float, output_tokens: float) -> float:
        """Return the seconds of a whole request (Eq. 17)."""
        return self.prefill_s(batch, input_tokens) + self.decode_s(
            batch, input_tokens, output_tokens
        )

    def tpot_s(self, batch: int, input_tokens: float, output_tokens: float) -> float:
        """Return the mean seconds of an output token (Eq. 19); 0 without one."""
        if output_tokens <= 0:
            return 0.0
        return self.decode_s(batch, input_tokens, output_tokens) / output_tokens


V100X2_QWEN25_7B = LatencyPredictor(
    BatchTime(0.1e-3, 5.7e-3, 0.01e-3, 43.67e-3),
    BatchTime(0.0002e-3, 0.275e-3, 0.00088e-3, 15.85e-3),
)
"""Huang et al. 2025, Table 2: Qwen2.5 7B on two V100; the paper's milliseconds as seconds."""


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


class TimedBatch(NamedTuple):
    """One step as Eq. 14 or 15 have it.

    Attributes:
        rows: sequences in the step.
        tokens: mean prompt tokens of a sequence in prefill, mean context tokens in decode.
        seconds: time of the step.
    """

    rows: int
    tokens: float
    seconds: float


def fit_latency(steps: Iterable[TimedStep]) -> LatencyPredictor:
    """Return the predictor with the least squared error over measured steps.

    A step that both computes prompts and decodes belongs to neither equation and is left out. A
    batch counts with the mean length of its sequences.

    Raises:
        ConfigurationError: a step has an impossible value, or the steps of a phase do not determine
            its four coefficients.
    """
    prefill, decode = by_phase(steps)
    return LatencyPredictor(fit_phase("prefill", prefill), fit_phase("decode", decode))


def by_phase(steps: Iterable[TimedStep]) -> tuple[list[TimedBatch], list[TimedBatch]]:
    """Return the batches of prefill and those of decode; steps of both phases are left out.

    Raises:
        ConfigurationError: a step has an impossible value.
    """
    prefill: list[TimedBatch] = []
    decode: list[TimedBatch] = []
    for step in steps:
        _check(step)
        if not step.prompt_tokens:
            decode.append(TimedBatch(step.rows, step.context_tokens / step.rows, step.seconds))
        elif not step.context_tokens:
            prefill.append(TimedBatch(step.rows, step.prompt_tokens / step.rows, step.seconds))
    return prefill, decode


def _check(step: TimedStep) -> None:
    if step.rows < 1 or min(step.prompt_tokens, step.context_tokens) < 0:
        raise ConfigurationError(
            f"a measured step has at least 1 row and no negative number of tokens, not {step}"
        )
    if not (math.isfinite(step.seconds) and step.seconds >= 0.0):
        raise ConfigurationError(
            f"the seconds of a step must be finite and from 0 on, not {step.seconds}"
        )


def fit_phase(phase: str, measured: Sequence[TimedBatch]) -> BatchTime:
    """Return the coefficients of a phase with the least squared error.

    Args:
        phase: its name in an error.
        measured: batches of this phase.

    Raises:
        ConfigurationError: the batches do not determine the four coefficients.
    """
    import numpy as np  # a server that fits nothing does not load it here

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
