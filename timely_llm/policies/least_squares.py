"""Recursive least squares that stays sound however long it runs."""

from __future__ import annotations

from collections.abc import Sequence

Vector = list[float]


class RecursiveLeastSquares:
    """Weights of a linear model, learned from one observation after the other.

    Older observations count less. The covariance is kept as `U D U^T`, U with ones on its diagonal
    and nothing below it, D diagonal (Bierman 1977). Nothing is ever subtracted from D, so rounding
    cannot make the covariance indefinite, as it does where the matrix itself is updated.

    Where the inputs of many observations say the same thing twice, forgetting alone would let the
    variance of what is never seen grow without end, and the next odd observation would throw the
    weights anywhere. So each step also says, of one weight in turn, that it is what it is. This
    moves no weight, and variances stay below about `(1 - forgetting) * len(weights) / anchor`.

    Args:
        weights: the first ones.
        forgetting: weight of an observation beside the one after it, below 1.
        anchor: how much it counts, beside an observation of size 1, that a weight is what it is.
        variance: of the first weights, beside the variance of an observation.

    Attributes:
        weights: the newest ones.
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
        """Believe no more than at the beginning, in weights that are this share of what they were.

        The anchor would else hold up weights that are much too large for the new observations.
        """
        self.weights = [weight * share for weight in self.weights]
        size = len(self.weights)
        self._d = [self._variance] * size
        # Of U, what is above the diagonal.
        self._columns = [[0.0] * column for column in range(size)]

    def predict(self, inputs: Sequence[float]) -> float:
        """Return what the weights make of inputs."""
        total = 0.0
        for weight, value in zip(self.weights, inputs, strict=True):
            total += weight * value
        return total

    def learn(self, inputs: Sequence[float], error: float) -> None:
        """Move the weights.

        Args:
            inputs: of an observation; finite.
            error: by how much it exceeds its prediction; finite.
        """
        forgetting = self._forgetting
        gain, scale = self._update(inputs, forgetting)
        step = error / scale
        self.weights = [w + g * step for w, g in zip(self.weights, gain, strict=True)]
        self._d = [variance / forgetting for variance in self._d]
        self._hold(self._turn)
        self._turn = (self._turn + 1) % len(self._d)

    def covariance(self) -> list[Vector]:
        """Return the covariance of the weights, beside the variance of an observation."""
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
        """Return the most likely weights of which none is negative.

        The most negative one becomes 0, and the others become what they most likely are then, until
        none is negative: what is predicted where much was seen stays nearly the same. A cut at 0
        alone would keep what the others had added to make up for it.
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
            if of_worst[worst] <= 0.0:  # nothing of it is left beside rounding
                continue
            for row in left:
                share = of_worst[row] / of_worst[worst]
                weights[row] -= share * lowest
                for column in left:
                    covariance[row][column] -= share * of_worst[column]
        return [max(weight, 0.0) for weight in weights]

    def _update(self, inputs: Sequence[float], noise: float) -> tuple[Vector, float]:
        """Shrink the covariance by an observation; return its gain, to be divided by a scale."""
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
        """Enter that a weight is what it is."""
        inputs = [0.0] * len(self._d)
        inputs[place] = self._anchor**0.5
        self._update(inputs, 1.0)
