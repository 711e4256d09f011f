"""How long a step takes: one model for policies, the simulator and the admission check."""

from __future__ import annotations

import numpy as np


class StepTime:
    """Predicted seconds of a step: `base + rows * r + prefill * p + context * c`.

    Fitted online by recursive least squares with forgetting, so that it follows an engine whose
    speed changes. Coefficients never predict a negative time.
    """

    def __init__(
        self,
        base_s: float = 0.02,
        row_s: float = 0.0002,
        prefill_token_s: float = 0.0001,
        context_token_s: float = 0.0,
        forgetting: float = 0.995,
    ) -> None:
        self._weights = np.array([base_s, row_s, prefill_token_s, context_token_s])
        # Scales bring the four inputs to about 1, so that one covariance suits all.
        self._scales = np.array([1.0, 8.0, 128.0, 4096.0])
        self._covariance = np.eye(4) * 10.0
        self._forgetting = forgetting
        self.observations = 0

    @property
    def coefficients(self) -> tuple[float, float, float, float]:
        """Seconds for (a step, a decode row, a prefill token, a context token)."""
        base, row, prefill, context = (float(w) for w in self._weights)
        return base, row, prefill, context

    def predict_s(self, rows: int, prefill_tokens: int = 0, context_tokens: int = 0) -> float:
        """Return the predicted seconds of a step.

        Args:
            rows: sequences that decode one token each.
            prefill_tokens: prompt tokens computed by the step.
            context_tokens: tokens that the step's sequences attend to.
        """
        base, row, prefill, context = self.coefficients
        seconds = base + row * rows + prefill * prefill_tokens + context * context_tokens
        return max(seconds, 1e-6)

    def observe(
        self, seconds: float, rows: int, prefill_tokens: int = 0, context_tokens: int = 0
    ) -> None:
        """Learn from a step that took `seconds`."""
        x = np.array([1.0, rows, prefill_tokens, context_tokens]) / self._scales
        weights = self._weights * self._scales
        # One odd step (a page fault, another process) must not throw the model off.
        error = float(
            np.clip(
                seconds - x @ weights,
                -1.0,
                3.0 * self.predict_s(rows, prefill_tokens, context_tokens),
            )
        )
        spread = self._covariance @ x
        gain = spread / (self._forgetting + x @ spread)
        weights = weights + gain * error
        covariance = (self._covariance - np.outer(gain, spread)) / self._forgetting
        if np.trace(covariance) < 1e4:
            self._covariance = covariance
        self._weights = np.maximum(weights, 0.0) / self._scales
        self.observations += 1
