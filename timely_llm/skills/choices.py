"""Choices: the only values that an argument of a skill may have."""

from __future__ import annotations

import math
from decimal import Decimal
from difflib import get_close_matches
from typing import Any, Literal

from timely_llm.core.documents.problems import FieldError, NoTextError
from timely_llm.core.text import name_problem, quoted

Choice = int | float | str
MAX_CHOICES = 256
"""Choices of one argument."""
MAX_CHOICE = 200
"""Characters of a choice that is a text."""
MAX_DIGITS = 16
"""Characters of a choice that is a number, as plans write it."""
SHOWN = 16
"""Choices that a sentence names."""


def checked_choices(value: Any, kind: Literal["integer", "number", "text"]) -> tuple[Choice, ...]:
    """Return the choices that a document gives for an argument.

    Args:
        value: what the document says.
        kind: the argument's type.

    Raises:
        ValueError: it is no list of different values of this type; the error names the wrong one.
    """
    if not isinstance(value, list | tuple):
        raise FieldError(f"must be a list such as {_example(kind)}, not {quoted(value)}")
    if not value:
        raise FieldError("must name at least one value, or be left out")
    if len(value) > MAX_CHOICES:
        raise FieldError(f"has {len(value)} entries, at most {MAX_CHOICES} are allowed")
    for place, choice in enumerate(value):
        if kind == "text":
            _check_text(choice, place)
        else:
            _check_number(choice, kind, place)
        if choice in value[:place]:
            raise FieldError(f"{quoted(choice)} stands twice: name each choice once", place)
    return tuple(value)


def literal(value: object) -> str:
    """Return a value as plans write it: a text in quotes, a number without an exponent."""
    if isinstance(value, str):
        return quoted_text(value, '"' if "'" in value and '"' not in value else "'")
    if isinstance(value, float) and math.isfinite(value):
        return format(Decimal(repr(value)), "f")
    return str(value)


def quoted_text(text: str, quote: str) -> str:
    """Return a text as plans write it within these quotes."""
    return quote + text.replace("\\", "\\\\").replace(quote, f"\\{quote}") + quote


def one_of(choices: tuple[Choice, ...], most: int | None = SHOWN) -> str:
    """Return the choices in words.

    Args:
        choices: all of them.
        most: how many of them are named; None: all.
    """
    words = [literal(choice) for choice in choices[:most]]
    more = f" and {len(choices) - len(words)} more" if len(choices) > len(words) else ""
    return f"one of {', '.join(words)}{more}" if len(choices) > 1 else words[0]


def choice_problem(choices: tuple[Choice, ...], value: Choice) -> str | None:
    """Return the allowed values and the nearest one if `value` is not among them.

    Returns:
        Words that go on after "must be "; None if the value is one of the choices.
    """
    if value in choices:
        return None
    if not isinstance(value, str):
        return f"{one_of(choices)}, not {quoted(value)}"
    texts = [choice for choice in choices if isinstance(choice, str)]
    near = get_close_matches(value[:MAX_CHOICE], texts, 1)
    hint = f": did you mean {literal(near[0])}?" if near and len(choices) > SHOWN else ""
    return f"{one_of(choices)}, not {quoted(value)}{hint}"


def _check_text(choice: Any, place: int) -> None:
    if not isinstance(choice, str):
        raise NoTextError(choice, place)
    if not 1 <= len(choice) <= MAX_CHOICE:
        raise FieldError(f"must have 1 to {MAX_CHOICE} characters, not {len(choice)}", place)
    if problem := name_problem("it", choice):
        raise FieldError(problem, place)
    if choice != choice.strip():
        raise FieldError(f"{quoted(choice)} must not begin or end with a space", place)


def _check_number(choice: Any, kind: str, place: int) -> None:
    allowed = (int,) if kind == "integer" else (int, float)
    what = "a whole number" if kind == "integer" else "a number"
    if isinstance(choice, bool) or not isinstance(choice, allowed) or not math.isfinite(choice):
        raise FieldError(
            f"must be {what}, as the argument's type says, not {quoted(choice)}", place
        )
    if len(literal(choice)) > MAX_DIGITS:
        raise FieldError(f"{quoted(choice)} has more than {MAX_DIGITS} characters in a plan", place)


def _example(kind: str) -> str:
    return {"integer": "[1, 2, 5]", "number": "[0.5, 1.5]"}.get(kind, "[A1, A2, B1]")
