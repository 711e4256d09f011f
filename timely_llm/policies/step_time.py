"""The step-time model, shared by policies, the simulator and the admission check."""

from __future__ import annotations

from collections.abc import Sequence

Vector = list[float]


class RecursiveLeastSquares:
    """Weights of a linear model, learned one observation at a time, stable over millions of them.

    Older observations count less. The covariance is stored as `U D U^T`, with U unit upper
    triangular and D diagonal (Bierman 1977). Nothing is ever subtracted from D, so rounding cannot
    make the covariance indefinite, as updates of the matrix itself do.

    Where inputs are collinear for long, forgetting alone would let the variance of unseen
    directions grow without bound, and one outlier could throw the weights anywhere. So each step
    also adds the observation that one weight, in turn, has its present value. This moves no weight,
    and variances stay below about `(1 - forgetting) * len(weights) / anchor`.

    Args:
        weights: initial weights.
        forgetting: weight of an observation relative to the next one, below 1.
        anchor: weight of the added observations, relative to an observation of size 1.
        variance: of the initial weights, relative to the variance of an observation.

    Attributes:
        weights: present weights.
    """

    def __init__(
        self, weights: Sequence[float], forgetting: float, anchor: float, variance: float = 1.0
    ) -> None:
        self.weights = list(weights)
        self._forgetting = forgetting
        self._anchor = anchor
        self._variance = variance
        self._turn = 0
        self.doubt()

    def doubt(self, share: float = 1.0) -> None:
        """Reset the covariance, and scale all weights by `share`.

        Without the scaling the anchor would hold weights that are much too large for new
        observations.
        """
        self.weights = [weight * share for weight in self.weights]
        size = len(self.weights)
        self._d = [self._variance] * size
        # The part of U above the diagonal.
        self._columns = [[0.0] * column for column in range(size)]

    def predict(self, inputs: Sequence[float]) -> float:
        """Return the prediction for inputs."""
        total = 0.0
        for weight, value in zip(self.weights, inputs, strict=True):
            total += weight * value
        return total

    def learn(self, inputs: Sequence[float], error: float) -> None:
        """Learn from one observation.

        Args:
            inputs: inputs of the observation; finite.
            error: observation minus prediction; finite.
        """
        forgetting = self._forgetting
        gain, scale = self._update(inputs, forgetting)
        step = error / scale
        self.weights = [w + g * step for w, g in zip(self.weights, gain, strict=True)]
        self._d = [variance / forgetting for variance in self._d]
        self._hold(self._turn)
        self._turn = (self._turn + 1) % len(self._d)

    def covariance(self) -> list[Vector]:
        """Return the covariance of the weights, relative to the variance of an observation."""
        size = len(self._d)
        made = [[0.0] * size for _ in range(size)]
        for variance, column in zip(self._d, self._columns, strict=True):
            whole = [*column, 1.0]
            for row, one in enumerate(whole):
                for other in range(row + 1):
                    made[row][other] += one * whole[other] * variance
        for row in range(size):
            for other in range(row):
                made[other][row] = made[row][other]
        return made

    def not_negative(self) -> Vector:
        """Return the most likely weights without a negative one.

        The most negative weight becomes 0 and the others their conditional means, until none is
        negative. So predictions near past observations hardly change. A cut at 0 alone would keep
        what the other weights had added to compensate.
        """
        weights = self.weights
        if min(weights) >= 0.0:
            return weights
        weights, covariance = weights.copy(), self.covariance()
        left = list(range(len(weights)))
        while left:
            worst = min(left, key=weights.__getitem__)
            if weights[worst] >= 0.0:
                break
            left.remove(worst)
            lowest, of_worst = weights[worst], covariance[worst]
            weights[worst] = 0.0
            if of_worst[worst] <= 0.0:  # zero but for rounding
                continue
            for row in left:
                share = of_worst[row] / of_worst[worst]
                weights[row] -= share * lowest
                for column in left:
                    covariance[row][column] -= share * of_worst[column]
        return [max(weight, 0.0) for weight in weights]

    def _update(self, inputs: Sequence[float], noise: float) -> tuple[Vector, float]:
        """Update the covariance by an observation; return its gain and the gain's divisor."""
        gain: Vector = []
        scale = noise
        d = self._d
        for place, column in enumerate(self._columns):
            seen = inputs[place]
            for factor, value in zip(column, inputs, strict=False):
                seen += factor * value
            before, spread = scale, d[place] * seen
            scale += spread * seen
            d[place] *= before / scale
            turn = -seen / before
            for row, factor in enumerate(column):
                column[row] = factor + gain[row] * turn
                gain[row] += factor * spread
            gain.append(spread)
        return gain, scale

    def _hold(self, place: int) -> None:
        """Add the observation that a weight has its present value."""
        inputs = [0.0] * len(self._d)
        inputs[place] = self._anchor**0.5
        self._update(inputs, 1.0)


LONGEST_S = 3600.0
"""Longest step that is learned from, seconds; a longer one counts as this."""

# Scales bring the four inputs to about 1, so that one variance suits all.
_SCALES = (1.0, 8.0, 128.0, 4096.0)
_ANCHOR = 0.05
_ODD = 1.0
_SHORTEST_S = 1e-3
_LEAST_S = 1e-6  # of any prediction
_JUMP = 2.0
_JUMPS = 16
_LEAST_SHARE = 0.01
_MOST_INPUT = 1 << 40  # more than any engine computes in a step


class StepTime:
    """Predicted seconds of a step: `base + rows * r + prefill * p + context * c`.

    Recursive least squares with forgetting fit the model online, so that it follows a change of the
    engine's speed. Coefficients never predict a negative time. Plain Python is faster than array
    operations on four numbers.

    A step counts as at most twice its prediction, so that one outlier (a page fault, another
    process) does not disturb the model. Sixteen steps in a row above twice their prediction, or
    below half of it, are a jump of the engine's speed. After a jump earlier observations count
    little, and a faster engine scales all coefficients.

    With `table_s`, `base + rows * r` begins as that table. A slower engine then stretches the
    table; differences by rows are added as a line.

    Args:
        base_s, row_s, prefill_token_s, context_token_s: the first coefficients, seconds.
        forgetting: weight of a step relative to the next one, below 1.
        table_s: measured seconds of a step of 1, 2, ... rows; empty: none.
        beyond_s: seconds of each row beyond the table.

    Attributes:
        coefficients: seconds for (a step, a decode row, a prefill token, a context token).
        observations: number of steps learned from.
        grows: in the table, a step of more rows never takes less time.
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
        self.grows = list(self._table) == sorted(self._table)
        self._beyond_s = beyond_s
        # With a table, the unit of the first weight is the table's first step.
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
        return max(seconds, _LEAST_S)

    def steps_s(self, rows: range, context_each: float = 0.0) -> list[float]:
        """Return the predicted seconds of steps of some numbers of rows, without prompts.

        Args:
            rows: the numbers of rows, rising.
            context_each: tokens that each row attends to.
        """
        if type(self).predict_s is not StepTime.predict_s or self._table:
            return [self.predict_s(number, 0, int(number * context_each)) for number in rows]
        base, row, _, context = self._weights
        steps_s = [base + row * number + context * int(number * context_each) for number in rows]
        if steps_s and steps_s[0] < _LEAST_S:
            return [max(step_s, _LEAST_S) for step_s in steps_s]
        return steps_s

    @property
    def delay_s(self) -> float:
        """Seconds by which a sequence's first token comes later than each further one, at most."""
        return 0.0

    def first_s(self, rows: int, prefill_tokens: int = 0, context_tokens: int = 0) -> float:
        """Return the most seconds until a step brings its tokens, if it is submitted now.

        In a pipeline, other steps may be in front of it. The arguments are those of `predict_s`.
        """
        return self.predict_s(rows, prefill_tokens, context_tokens)

    def observe(
        self, seconds: float, rows: int, prefill_tokens: int = 0, context_tokens: int = 0
    ) -> None:
        """Learn from a step that took `seconds`.

        Impossible times (not a number, infinite, negative) and impossible counts are ignored.
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
        """Return whether this step completes a jump: the last of many slower or faster ones."""
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
        """Return the table's seconds of a step of `rows`, in units of its first step."""
        if not rows:
            return self._of_unit[0]
        most = len(self._table)
        if rows <= most:
            return self._table[rows - 1] / self._unit_s
        return (self._table[-1] + self._beyond_s * (rows - most)) / self._unit_s
