"""Checks of public calls' arguments: types and ranges.

Each function returns the value in Python's own type, or raises one sentence.
"""

from __future__ import annotations

import math
from numbers import Integral, Real
from typing import TypeVar

from timely_llm.core.errors import RequestError, TimelyError
from timely_llm.core.text import quoted

LONGEST_S = 1e9
"""The longest wait that every clock and lock takes, seconds."""
T = TypeVar("T")
Error = type[TimelyError]


def text(what: str, value: object, error: Error = RequestError) -> str:
    """Return a value that must be a text."""
    if not isinstance(value, str):
        raise error(f"{what} must be a text, not {quoted(value)}")
    return value


def is_number(value: object) -> bool:
    """Return whether a value is a number that a float can hold; NaN is one, True is none."""
    if not isinstance(value, Real) or isinstance(value, bool):
        return False
    try:
        float(value)
    except OverflowError:
        return False
    return True


def number(
    what: str, value: object, low: float, high: float = math.inf, error: Error = RequestError
) -> float:
    """Return a number that is not NaN, from `low` to `high`."""
    if not isinstance(value, Real) or isinstance(value, bool):
        raise error(f"{what} must be a number, {_range(low, high)}, not {quoted(value)}")
    try:
        found = float(value)
    except OverflowError:
        found = math.nan
    if not low <= found <= high:
        raise error(f"{what} must be {_range(low, high)}, not {quoted(value)}")
    return found


def whole(
    what: str, value: object, low: float, high: float = math.inf, error: Error = RequestError
) -> int:
    """Return a whole number from `low` to `high`."""
    if not isinstance(value, Integral) or isinstance(value, bool):
        raise error(f"{what} must be a whole number, {_range(low, high)}, not {quoted(value)}")
    if not low <= int(value) <= high:
        raise error(f"{what} must be {_range(low, high)}, not {quoted(value)}")
    return int(value)


def seconds(what: str, value: object, low: float = 0.0, error: Error = RequestError) -> float:
    """Return a waiting time in seconds."""
    return number(what, value, low, LONGEST_S, error)


def kind(what: str, value: object, expected: type[T], error: Error = RequestError) -> T:
    """Return a value of a type."""
    if not isinstance(value, expected):
        raise error(f"{what} must be a {expected.__name__}, not {quoted(value)}")
    return value


def function(what: str, value: object, error: Error = RequestError) -> None:
    """Check that a value can be called, or is None."""
    if value is not None and not callable(value):
        raise error(f"{what} must be callable, not {quoted(value)}")


def _range(low: float, high: float) -> str:
    return f"at least {_plain(low)}" if high == math.inf else f"{_plain(low)} to {_plain(high)}"


def _plain(value: float) -> str:
    return f"{value:.0f}" if float(value).is_integer() else f"{value:g}"
