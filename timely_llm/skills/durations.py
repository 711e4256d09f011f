"""How long a skill takes: the execution-time model (paper 001 §4.3 and §6)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated

from pydantic import BaseModel, ConfigDict, Field, model_validator

if TYPE_CHECKING:
    import numpy as np

Finite = Annotated[float, Field(allow_inf_nan=False)]


class Duration(BaseModel):
    """Seconds a skill takes, as a polynomial of its first number or as a count of equal steps.

    A scene-dependent skill (a search) takes between `steps[0]` and `steps[1]` steps; it is
    predicted by its lower bound, so that the next segment is in time in the worst case
    (paper 001 §4.3).
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    polynomial: tuple[Finite, ...] | None = None
    step_s: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    steps: tuple[int, int] | None = None

    @model_validator(mode="after")
    def _one_form(self) -> Duration:
        stepped = self.step_s is not None and self.steps is not None
        if (self.polynomial is not None) == stepped or (self.step_s is None) != (
            self.steps is None
        ):
            raise ValueError(
                "a duration is either {polynomial: [...]} or {step_s: .., steps: [low, high]}"
            )
        if self.polynomial is not None and not self.polynomial:
            raise ValueError("polynomial needs at least one coefficient")
        if self.steps is not None and not 1 <= self.steps[0] <= self.steps[1]:
            raise ValueError(
                f"steps must be [low, high] with 1 <= low <= high, not {list(self.steps)}"
            )
        return self

    @property
    def scene_dependent(self) -> bool:
        """Whether the scene, not the arguments, decides how long it takes."""
        return self.steps is not None

    def predict_s(self, arguments: tuple[int | float | str, ...]) -> float:
        """Return the predicted seconds (the lower bound if scene-dependent), never below 0."""
        if self.steps is not None and self.step_s is not None:
            return self.steps[0] * self.step_s
        x = next((float(a) for a in arguments if isinstance(a, int | float)), 0.0)
        value = 0.0
        for coefficient in reversed(self.polynomial or ()):
            value = value * x + coefficient
        return max(0.0, value) if math.isfinite(value) else 0.0

    def longest_s(self, arguments: tuple[int | float | str, ...] = ()) -> float:
        """Return the most seconds it may take: all steps if scene-dependent, else as predicted."""
        if self.steps is not None and self.step_s is not None:
            return self.steps[1] * self.step_s
        return self.predict_s(arguments)

    def sample_s(
        self,
        arguments: tuple[int | float | str, ...],
        rng: np.random.Generator,
        spread: float = 0.0,
    ) -> float:
        """Return seconds as a simulated robot would take them.

        `spread` is the standard deviation of the logarithm of the ratio true / predicted.
        """
        if self.steps is not None and self.step_s is not None:
            return float(rng.integers(self.steps[0], self.steps[1] + 1)) * self.step_s
        return self.predict_s(arguments) * float(rng.lognormal(0.0, spread))
