"""How long a skill takes: the execution-time model's forms (paper 001 §4.3 and §6)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated

from pydantic import BaseModel, ConfigDict, Field, model_validator

if TYPE_CHECKING:
    import numpy as np

Finite = Annotated[float, Field(allow_inf_nan=False)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Quantiles = Annotated[dict[Annotated[float, Field(ge=0, le=1)], Positive], Field(max_length=256)]


class Duration(BaseModel):
    """Seconds a skill takes, in one of three forms.

    `polynomial` of its first number, if the arguments decide; `spread` may say how much the truth
    differs from it. `step_s` and `steps`, if it makes between `steps[0]` and `steps[1]` equal
    steps, as a search does; `quantiles`, if it was measured and the arguments do not decide. The
    last two are scene-dependent: predicted by their lower bound, so that the next segment is in
    time in the worst case (paper 001 §4.3).

    Attributes:
        polynomial: coefficients, the constant first; seconds.
        spread: quantiles of the ratio of true to predicted seconds.
        step_s: seconds of one step.
        steps: the fewest and the most steps.
        quantiles: seconds by share of the measured times that are not above them.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    polynomial: Annotated[tuple[Finite, ...], Field(max_length=16)] | None = None
    spread: Quantiles | None = None
    step_s: Positive | None = None
    steps: tuple[int, int] | None = None
    quantiles: Quantiles | None = None

    @model_validator(mode="after")
    def _one_form(self) -> Duration:
        stepped = self.step_s is not None and self.steps is not None
        forms = [self.polynomial is not None, stepped, self.quantiles is not None]
        if sum(forms) != 1 or (self.step_s is None) != (self.steps is None):
            raise ValueError(
                "a duration is either {polynomial: [...]} or {step_s: .., steps: [low, high]}"
                ' or {quantiles: {"0.05": .., "0.95": ..}}'
            )
        if self.polynomial is not None and not self.polynomial:
            raise ValueError("polynomial needs at least one coefficient")
        if self.steps is not None and not 1 <= self.steps[0] <= self.steps[1]:
            raise ValueError(
                f"steps must be [low, high] with 1 <= low <= high, not {list(self.steps)}"
            )
        if self.spread is not None and self.polynomial is None:
            raise ValueError("spread goes with a polynomial only")
        for name, values in (("quantiles", self.quantiles), ("spread", self.spread)):
            _check_order(name, values)
        return self

    @property
    def scene_dependent(self) -> bool:
        """Whether the scene, not the arguments, decides how long it takes."""
        return self.polynomial is None

    def predict_s(self, arguments: tuple[int | float | str, ...]) -> float:
        """Return the predicted seconds (the lower bound if scene-dependent), never below 0."""
        if self.scene_dependent:
            return self.quantile_s(arguments, 0.0)
        x = next((float(a) for a in arguments if isinstance(a, int | float)), 0.0)
        value = 0.0
        for coefficient in reversed(self.polynomial or ()):
            value = value * x + coefficient
        return max(0.0, value) if math.isfinite(value) else 0.0

    def quantile_s(self, arguments: tuple[int | float | str, ...], share: float) -> float:
        """Return the seconds that it exceeds with probability 1 - `share`.

        Args:
            arguments: of the call.
            share: 0 to 1.
        """
        if self.steps is not None and self.step_s is not None:
            low, high = self.steps
            return self.step_s * min(high, low + math.floor(share * (high - low + 1)))
        if self.quantiles is not None:
            return _interpolate(self.quantiles, share)
        ratio = 1.0 if self.spread is None else _interpolate(self.spread, share)
        return self.predict_s(arguments) * ratio

    def longest_s(self, arguments: tuple[int | float | str, ...] = ()) -> float:
        """Return the most seconds it may take, as far as is known."""
        return self.quantile_s(arguments, 1.0)

    def sample_s(
        self,
        arguments: tuple[int | float | str, ...],
        rng: np.random.Generator,
        spread: float = 0.0,
    ) -> float:
        """Return seconds as a simulated robot would take them.

        Args:
            arguments: of the call.
            rng: randomness.
            spread: standard deviation of the logarithm of the ratio of true to predicted seconds,
                where the arguments decide and nothing was measured.
        """
        if self.scene_dependent or self.spread is not None:
            return self.quantile_s(arguments, float(rng.random()))
        return self.predict_s(arguments) * float(rng.lognormal(0.0, spread))


def _check_order(name: str, values: Mapping[float, float] | None) -> None:
    """Find out whether quantiles rise.

    Raises:
        ValueError: there are none, or one is below one of a smaller share.
    """
    if values is None:
        return
    if not values:
        raise ValueError(f"{name} needs at least one value")
    seconds = [values[share] for share in sorted(values)]
    if seconds != sorted(seconds):
        raise ValueError(f"{name} must rise from the smallest share to the largest, not {seconds}")


def _interpolate(values: Mapping[float, float], share: float) -> float:
    """Return the value at `share`, in a straight line between its neighbours."""
    shares = sorted(values)
    if share <= shares[0]:
        return values[shares[0]]
    for low, high in pairwise(shares):
        if share <= high:
            part = (share - low) / (high - low)
            return values[low] + part * (values[high] - values[low])
    return values[shares[-1]]
