"""A skill: its arguments, what it returns, and how long it takes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationInfo,
    field_validator,
    model_validator,
)

from timely_llm.core.documents.problems import FieldError
from timely_llm.core.segment import ArgumentType, SkillParameter
from timely_llm.core.text import name_problem, quoted
from timely_llm.skills.choices import Choice, checked_choices, choice_problem, literal, one_of
from timely_llm.skills.fields import NUMBER, documented

if TYPE_CHECKING:
    import numpy as np


Finite = Annotated[float, NUMBER, Field(allow_inf_nan=False)]
Positive = Annotated[float, NUMBER, Field(gt=0, allow_inf_nan=False)]


def _shares_stand_once(value: Any) -> Any:
    """Check that the keys of a mapping differ as numbers; return any value as it is.

    Raises:
        ValueError: a share stands twice, such as 0.5 and "0.50".
    """
    seen: dict[float, Any] = {}
    for key in value if isinstance(value, dict) else ():
        try:
            share = float(key)
        except (TypeError, ValueError):
            continue  # its own error follows
        if share in seen:
            raise FieldError(f"{key} is the same share as {seen[share]}: give each once", key)
        seen[share] = key
    return value


Quantiles = Annotated[
    dict[Annotated[float, Field(ge=0, le=1)], Positive],
    Field(max_length=256),
    BeforeValidator(_shares_stand_once),
]


class Duration(BaseModel):
    """Seconds a skill takes, in one of three forms.

    `polynomial` of its first number, if the arguments decide; `spread` may say how much the truth
    differs from it. `step_s` and `steps`, if it makes between `steps[0]` and `steps[1]` equal
    steps, as a search does; `quantiles`, if it was measured and the arguments do not decide. The
    last two are scene-dependent: predicted by their lower bound, so that the next segment is in
    time in the worst case (Ling et al. 2024, §4.3).
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    polynomial: Annotated[
        Annotated[tuple[Finite, ...], Field(max_length=16)] | None,
        documented(
            "Coefficients of a polynomial of the call's first number, the constant first.",
            "[1.5, 0.04]", "s",
        ),
    ] = None  # fmt: skip
    spread: Annotated[
        Quantiles | None,
        documented(
            "With `polynomial`: quantiles of the ratio of true to predicted seconds.",
            '{"0": 0.8, "1": 1.3}',
        ),
    ] = None
    step_s: Annotated[
        Positive | None, documented("With `steps`: seconds of one step.", "1.5275", "s")
    ] = None
    steps: Annotated[
        tuple[Annotated[int, NUMBER], Annotated[int, NUMBER]] | None,
        documented("With `step_s`: the fewest and the most steps.", "[1, 8]"),
    ] = None
    quantiles: Annotated[
        Quantiles | None,
        documented(
            "Seconds by the share of measured times that are not above them.",
            '{"0": 6, "0.5": 12, "1": 30}', "s",
        ),
    ] = None  # fmt: skip

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
            raise FieldError("needs at least one coefficient", "polynomial")
        if self.steps is not None and not 1 <= self.steps[0] <= self.steps[1]:
            raise FieldError(
                f"must be [low, high] with 1 <= low <= high, not {list(self.steps)}", "steps"
            )
        if self.spread is not None and self.polynomial is None:
            raise FieldError("leave it out: it goes with a polynomial only", "spread")
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
        raise FieldError("needs at least one value", name)
    seconds = [values[share] for share in sorted(values)]
    if seconds != sorted(seconds):
        raise FieldError(f"must rise from the smallest share to the largest, not {seconds}", name)


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


_Word = Annotated[str, Field(max_length=64)]


class Argument(BaseModel):
    """One argument of a skill: its type, unit and bounds, or its choices."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: Annotated[
        _Word, documented("What the prompt and the errors call it; once in a skill.", "shelf")
    ]
    type: Annotated[
        Literal["integer", "number", "text"],
        documented(
            "`integer`: a whole number, an int for the robot. `number`: a float. `text`: a str, in"
            " quotes in a plan.",
            "text",
        ),
    ]
    unit: Annotated[_Word, documented("Unit of a number, for the prompt and the errors.", "cm")] = (
        ""
    )
    choices: Annotated[
        tuple[Choice, ...],
        documented(
            "The only values allowed, each of the argument's type. Without them all values within"
            " the bounds are allowed.",
            "[A1, A2, B1]",
        ),
    ] = ()
    minimum: Annotated[
        Finite | None,
        documented("Smallest number allowed; none if not given.", "0", "that of the argument"),
    ] = None
    maximum: Annotated[
        Finite | None,
        documented("Largest number allowed; none if not given.", "150", "that of the argument"),
    ] = None
    maximum_length: Annotated[
        int,
        NUMBER,
        documented("Length of the longest text allowed.", "40", "characters", ge=1, le=10_000),
    ] = 200

    @field_validator("name", "unit")
    @classmethod
    def _stands_in_a_line(cls, name: str) -> str:
        problem = name_problem("it", name)
        if problem is not None:
            raise ValueError(problem)
        return name

    @field_validator("choices", mode="plain")
    @classmethod
    def _choices_are_of_the_type(cls, value: Any, info: ValidationInfo) -> tuple[Choice, ...]:
        # Not pydantic's own union: it would take `on` for 1.
        kind = info.data.get("type")
        return () if kind is None else checked_choices(value, kind)

    @model_validator(mode="after")
    def _limits_fit_the_type(self) -> Argument:
        bounds = [name for name in ("minimum", "maximum") if getattr(self, name) is not None]
        if self.choices and "maximum_length" in self.model_fields_set:
            bounds.append("maximum_length")
        if self.choices and bounds:
            raise FieldError("leave it out: choices say which values are allowed", bounds[0])
        if self.type == "text" and bounds:
            raise FieldError("leave it out, or set type to integer or number", bounds[0])
        if self.type != "text" and "maximum_length" in self.model_fields_set:
            raise FieldError("leave it out, or set type to text", "maximum_length")
        return self

    @model_validator(mode="after")
    def _bounds_are_ordered(self) -> Argument:
        if self.minimum is not None and self.maximum is not None and self.minimum > self.maximum:
            raise FieldError(
                f"minimum {self.minimum:g} is above maximum {self.maximum:g}", "minimum"
            )
        return self

    @property
    def wire_type(self) -> ArgumentType:
        """The argument's type in messages."""
        if self.type == "text" and self.choices:
            return ArgumentType.CHOICE
        return ArgumentType[self.type.upper()]

    @property
    def longest(self) -> int:
        """Characters of the longest text allowed."""
        texts = [len(choice) for choice in self.choices if isinstance(choice, str)]
        return max(texts, default=self.maximum_length)

    def problem(self, value: int | float | str) -> str | None:
        """Return what is wrong with `value` and what is allowed, or None if it is fine."""
        if self.type == "text":
            if not isinstance(value, str):
                such = f" such as {literal(self.choices[0])}" if self.choices else ""
                return f"{self.name} must be a quoted text{such}, not {quoted(value)}"
            if self.choices:
                return self._choice_problem(value)
            if not 1 <= len(value) <= self.maximum_length:
                return (
                    f"{self.name} must have 1 to {self.maximum_length} characters, not {len(value)}"
                )
            return None
        if isinstance(value, str):
            return f"{self.name} must be a number, not the text {quoted(value)}"
        if isinstance(value, bool):
            return f"{self.name} must be a number, not {value}"
        if self.type == "integer" and not isinstance(value, int):
            return f"{self.name} must be a whole number, not {quoted(value)}"
        if self.choices:
            return self._choice_problem(value)
        low = -float("inf") if self.minimum is None else self.minimum
        high = float("inf") if self.maximum is None else self.maximum
        if not low <= value <= high:
            return f"{self.name} must be {self.allowed()}, not {value}"
        return None

    def _choice_problem(self, value: Choice) -> str | None:
        problem = choice_problem(self.choices, value)
        return None if problem is None else f"{self.name} must be {problem}"

    def allowed(self, most: int | None = None) -> str:
        """Return the allowed values in words, such as "10 to 500 cm".

        Args:
            most: how many choices are named; None: all.
        """
        if self.choices:
            return f"{one_of(self.choices, most)} {self.unit}".strip()
        if self.minimum is None and self.maximum is None:
            return f"any {self.type} {self.unit}".strip()
        low = "" if self.minimum is None else f"{self.minimum:g}"
        high = "" if self.maximum is None else f"{self.maximum:g}"
        words = (
            f"{low} to {high}" if low and high else f"at least {low}" if low else f"at most {high}"
        )
        return f"{words} {self.unit}".strip()


MAX_ARGUMENTS = 16
MAX_ALSO = 32
Line = Annotated[str, Field(max_length=2000)]


class Skill(BaseModel):
    """One thing the robot can do.

    A blocking skill's return value is needed to go on with the plan: generation stops after the
    call, and the value is appended to the model's context (Ling et al. 2024, §8).
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    description: Annotated[
        Line, documented("What it does, in the prompt.", "drive to a shelf, true if reached")
    ]
    arguments: Annotated[
        tuple[Argument, ...],
        documented(
            "What a call takes, in order.",
            "[{name: shelf, type: text, choices: [A1, A2]}]",
            max_length=MAX_ARGUMENTS,
        ),
    ] = ()
    duration: Annotated[
        Duration,
        documented("How long it takes; see Duration.", "{polynomial: [1.5, 0.04]}", "s"),
    ]
    returns: Annotated[
        Literal["nothing", "boolean", "number", "text"],
        documented("What it returns: a condition, or the plan after a blocking call, uses it.",
                   "boolean"),
    ] = "nothing"  # fmt: skip
    also: Annotated[
        tuple[Annotated[str, Field(min_length=1, max_length=40)], ...],
        documented(
            "Other words with which people ask for it: a step of a cloud's sketch may use the"
            " description where the task uses another word, or the other way round.",
            "[photograph, photo]",
            max_length=MAX_ALSO,
        ),
    ] = ()
    blocking: Annotated[
        bool,
        documented(
            "The model waits for the value of a call, reads it and goes on with the plan. Such a"
            " call is a statement outside of loops, and `returns` is not `nothing`.",
            "true",
        ),
    ] = False

    @model_validator(mode="after")
    def _blocking_returns(self) -> Skill:
        if self.blocking and self.returns == "nothing":
            raise FieldError("a blocking skill returns something: set returns", "blocking")
        return self

    @model_validator(mode="after")
    def _arguments_have_different_names(self) -> Skill:
        names = [argument.name for argument in self.arguments]
        if (again := first_repeated(names)) is not None:
            raise FieldError(
                f"{quoted(names[again])} stands twice: give each argument its own name",
                "arguments", again, "name",
            )  # fmt: skip
        return self

    @cached_property
    def parameters(self) -> tuple[SkillParameter, ...]:
        """Names and types of the arguments, as calls carry them."""
        return tuple(SkillParameter(a.name, a.wire_type) for a in self.arguments)

    def signature(self, name: str) -> str:
        """Return the skill's line in the prompt."""
        names = ", ".join(a.name for a in self.arguments)
        bounds = "".join(
            f", {a.name} {a.allowed()}" for a in self.arguments if a.type != "text" or a.choices
        )
        return f"{name}({names}): {self.description}{bounds}"


def first_repeated(names: Sequence[object]) -> int | None:
    """Return the index of the first entry that stood before; None: all are different."""
    return next((n for n, name in enumerate(names) if name in names[:n]), None)
