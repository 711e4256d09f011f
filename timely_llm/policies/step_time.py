"""How long a step takes: one model for policies, the simulator and the admission check."""

from __future__ import annotations

from collections.abc import Sequence

from timely_llm.policies.least_squares import RecursiveLeastSquares

LONGEST_S = 3600.0
"""A step that took longer, if any did, is taken to have lasted so long."""

# They bring the four inputs to about 1, so that one variance suits all.
_SCALES = (1.0, 8.0, 128.0, 4096.0)
_ANCHOR = 0.05
_ODD = 1.0
_SHORTEST_S = 1e-3
_JUMP = 2.0
_JUMPS = 16
_LEAST_SHARE = 0.01
_MOST_INPUT = 1 << 40  # more than any engine computes in a step


class StepTime:
    """Predicted seconds of a step: `base + rows * r + prefill * p + context * c`.

    Fitted online by recursive least squares with forgetting, so that it follows an engine whose
    speed changes. Coefficients never predict a negative time. In plain Python: four numbers are too
    few for array operations to pay.

    A step counts as if it had taken twice its prediction at most: one odd step (a page fault,
    another process) does not throw the model off. Sixteen steps in a row that took more than twice
    their prediction, or less than half, are not odd: the engine's speed has jumped. What was
    learned before counts little from there on, and a faster engine is taken to be faster in all.

    Where rows were measured one by one, `base + rows * r` begins as their table. An engine that is
    slower than it was then stretches the table, and what differs by rows is added as a line.

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
        self.observations = 0
        self._jumps = 0  # steps in a row that were much slower; below 0: much faster
        self._table = tuple(table_s)
        self._beyond_s = beyond_s
        # Of a table, the unit of the first weight is the step that it begins with.
        self._unit_s = (base_s or self._table[0]) if self._table else 1.0
        self._of_unit = base_s / self._unit_s, row_s / self._unit_s
        first = (self._unit_s, 0.0) if self._table else (base_s, row_s)
        weights = (*first, prefill_token_s, context_token_s)
        self._weights = weights  # none of them negative, for inputs that are not scaled
        self._fit = RecursiveLeastSquares(
            [weight * scale for weight, scale in zip(weights, _SCALES, strict=True)],
            forgetting,
            _ANCHOR,
        )

    def predict_s(self, rows: int, prefill_tokens: int = 0, context_tokens: int = 0) -> float:
        """Return the predicted seconds of a step.

        Args:
            rows: sequences that decode one token each.
            prefill_tokens: prompt tokens computed by the step.
            context_tokens: tokens that the step's sequences attend to.
        """
        base, row, prefill, context = self._weights
        if self._table:
            base *= self._units(rows)
        seconds = base + row * rows + prefill * prefill_tokens + context * context_tokens
        return max(seconds, 1e-6)

    def observe(
        self, seconds: float, rows: int, prefill_tokens: int = 0, context_tokens: int = 0
    ) -> None:
        """Learn from a step that took `seconds`.

        Nothing is learned from what is no time (not a number, infinite, or negative, as where a
        clock was set back), nor from counts that no step can have.
        """
        counts = rows, prefill_tokens, context_tokens
        if not 0.0 <= seconds < float("inf") or min(counts) < 0 or max(counts) > _MOST_INPUT:
            return
        s0, s1, s2, s3 = _SCALES
        units = self._units(rows) if self._table else 1.0
        inputs = (units / s0, rows / s1, prefill_tokens / s2, context_tokens / s3)
        predicted_s = self.predict_s(*counts)
        most_s = _ODD * max(predicted_s, _SHORTEST_S)
        fit = self._fit
        if self._has_jumped(seconds, predicted_s):
            fit.doubt(min(max(seconds / predicted_s, _LEAST_SHARE), 1.0))
        fit.learn(inputs, min(min(seconds, LONGEST_S) - fit.predict(inputs), most_s))
        w0, w1, w2, w3 = fit.not_negative()
        self._weights = base, row, prefill, context = w0 / s0, w1 / s1, w2 / s2, w3 / s3
        if self._table:
            of_base, of_row = self._of_unit
            base, row = base * of_base, base * of_row + row
        self.coefficients = base, row, prefill, context
        self.observations += 1

    def _has_jumped(self, seconds: float, predicted_s: float) -> bool:
        """Return whether this step is the last of many in a row that took much more, or less."""
        if predicted_s / _JUMP < seconds < predicted_s * _JUMP:
            self._jumps = 0
            return False
        slower = seconds > predicted_s
        if slower is (self._jumps < 0):
            self._jumps = 0
        self._jumps += 1 if slower else -1
        if abs(self._jumps) < _JUMPS:
            return False
        self._jumps = 0
        return True

    def _units(self, rows: int) -> float:
        """Return how many times as long as the table's first step one of so many rows takes."""
        if not rows:
            return self._of_unit[0]
        most = len(self._table)
        if rows <= most:
            return self._table[rows - 1] / self._unit_s
        return (self._table[-1] + self._beyond_s * (rows - most)) / self._unit_s
