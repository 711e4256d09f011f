"""Predicted seconds of a whole request in a batch (Huang et al. 2025, §4.2)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


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
