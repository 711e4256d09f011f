"""Fields of skill sets: what each means, for the reference page and for readers of the code."""

from __future__ import annotations

from typing import Any

from pydantic import BeforeValidator, Field
from pydantic_core import PydanticKnownError


def _no_truth_value(value: Any) -> Any:
    if isinstance(value, bool):
        raise PydanticKnownError("float_type")
    return value


NUMBER = BeforeValidator(_no_truth_value)
"""For numbers: YAML's `on` is none, though Python takes True for 1."""


def documented(meaning: str, example: str, unit: str = "", **limits: Any) -> Any:
    """Return pydantic's definition of a field.

    Args:
        meaning: one or two sentences.
        example: a value as it is written in YAML.
        unit: of the value; empty: none.
        limits: bounds, as pydantic's `Field` takes them.
    """
    return Field(
        description=meaning, examples=[example], json_schema_extra={"unit": unit}, **limits
    )
