"""How long a step takes: one model for policies, the simulator and the admission check."""

from __future__ import annotations

from collections.abc import Sequence

# They bring the four inputs to about 1, so that one covariance suits all.
_SCALES = (1.0, 8.0, 128.0, 4096.0)
_LARGEST_VARIANCE = 1.0  # also the first one


class StepTime:
    """Predicted seconds of a step: `base + rows * r + prefill * p + context * c`.

    Fitted online by recursive least squares with forgetting, so that it follows an engine whose
    speed changes. Coefficients never predict a negative time. In plain Python: four numbers are
    too few for array operations to pay.

    Where rows were measured one by one, what their table says beyond the line `base + rows * r` is
    added, and the line learns what the table does not know.

    Args:
        base_s, row_s, prefill_token_s, context_token_s: the first coefficients.
        forgetting: weight of a step beside the one after it.
        table_s: seconds of a step of 1, 2, ... rows, if they are known.
        beyond_s: seconds of each row more than the table has.

    Attributes:
        coefficients: seconds for (a step, a decode row, a prefill token, a context token).
        observations: steps that it learned from.
    """

    def __init__(
        self,
        base_s: float = 0.02,
        row_s: float = 0.0002,
        prefill_token_s: float = 0.0001,
        context_token_s: float = 0.0,
        forgetting: float = 0.995,
        *,
        table_s: Sequence[float] = (),
        beyond_s: float = 0.0,
    ) -> None:
        self.coefficients = (base_s, row_s, prefill_token_s, context_token_s)
        self._free = self.coefficients  # before what is negative becomes 0
        self.observations = 0
        self._forgetting = forgetting
        self._bends_s = [
            seconds - base_s - row_s * rows for rows, seconds in enumerate(table_s, start=1)
        ]
        self._later_bend_s = beyond_s - row_s
        self._covariance = [
            [_LARGEST_VARIANCE if row == column else 0.0 for column in range(4)] for row in range(4)
        ]

    def predict_s(self, rows: int, prefill_tokens: int = 0, context_tokens: int = 0) -> float:
        """Return the predicted seconds of a step.

        Args:
            rows: sequences that decode one token each.
            prefill_tokens: prompt tokens computed by the step.
            context_tokens: tokens that the step's sequences attend to.
        """
        base, row, prefill, context = self.coefficients
        seconds = base + row * rows + prefill * prefill_tokens + context * context_tokens
        if self._bends_s:
            seconds += self._bend_s(rows)
        return max(seconds, 1e-6)

    def observe(
        self, seconds: float, rows: int, prefill_tokens: int = 0, context_tokens: int = 0
    ) -> None:
        """Learn from a step that took `seconds`."""
        seconds -= self._bend_s(rows)
        s0, s1, s2, s3 = _SCALES
        x0, x1, x2, x3 = 1.0 / s0, rows / s1, prefill_tokens / s2, context_tokens / s3
        base, row, prefill, context = self._free
        predicted_s = base + row * rows + prefill * prefill_tokens + context * context_tokens
        # One odd step (a page fault, another process) must not throw the model off.
        error = min(max(seconds - predicted_s, -1.0), 3.0 * max(predicted_s, 1e-3))
        spread = [a * x0 + b * x1 + c * x2 + d * x3 for a, b, c, d in self._covariance]
        p0, p1, p2, p3 = spread
        scale = self._forgetting + x0 * p0 + x1 * p1 + x2 * p2 + x3 * p3
        step = error / scale
        self._free = base, row, prefill, context = (
            base + p0 * step / s0,
            row + p1 * step / s1,
            prefill + p2 * step / s2,
            context + p3 * step / s3,
        )
        self.coefficients = (max(base, 0.0), max(row, 0.0), max(prefill, 0.0), max(context, 0.0))
        self._forget(spread, scale)
        self.observations += 1

    def _bend_s(self, rows: int) -> float:
        """Return the seconds that the table has beyond the line."""
        if not rows or not self._bends_s:
            return 0.0
        most = len(self._bends_s)
        if rows <= most:
            return self._bends_s[rows - 1]
        return self._bends_s[-1] + self._later_bend_s * (rows - most)

    def _forget(self, spread: list[float], scale: float) -> None:
        """Shrink the covariance by what was seen, and let it grow by what may have changed.

        It grows only up to a bound: where the inputs of many steps say the same thing twice
        (context grows with rows), forgetting would let it grow without end in the directions that
        are never seen, and the next odd step would throw the coefficients anywhere.
        """
        grown = [
            [
                (value - p * q / scale) / self._forgetting
                for value, q in zip(row, spread, strict=True)
            ]
            for row, p in zip(self._covariance, spread, strict=True)
        ]
        variances = [grown[place][place] for place in range(4)]
        if max(variances) > _LARGEST_VARIANCE:
            cut = [(_LARGEST_VARIANCE / max(v, _LARGEST_VARIANCE)) ** 0.5 for v in variances]
            grown = [
                [value * one * other for value, other in zip(row, cut, strict=True)]
                for row, one in zip(grown, cut, strict=True)
            ]
        self._covariance = grown
