"""Options as users write them: `name=value`."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from enum import StrEnum

from timely_llm.core.errors import ConfigurationError
from timely_llm.core.text import quoted

_SWITCH = {"on": True, "off": False}
_MOST = 1e9


def read_options(
    name: str, known: Mapping[str, object], texts: Iterable[str]
) -> dict[str, float | str]:
    """Return options by name, each from a text `option=value`; empty texts are skipped.

    Args:
        name: of what has the options, for the sentences of errors.
        known: all options, each with its default.
        texts: the texts.

    Raises:
        ConfigurationError: an option is unknown or comes twice, or a value is not possible.
    """
    values: dict[str, float | str] = {}
    for text in filter(None, texts):
        option, equals, value = text.partition("=")
        if not equals or option not in known:
            allowed = ", ".join(f"{one}={possible(default)}" for one, default in known.items())
            choice = f"choose of {allowed}" if known else "it has none"
            raise ConfigurationError(f"{quoted(text)} is no option of {name}: {choice}")
        if option in values:
            raise ConfigurationError(f"the option {option} of {name} is given twice")
        values[option] = option_value(f"{name}:{option}", known[option], value)
    return values


def possible(default: object) -> str:
    """Return what an option can be: its words, or dots for a number or a switch."""
    return "|".join(type(default)) if isinstance(default, StrEnum) else "..."


def option_value(what: str, default: object, text: str) -> float | str:
    """Return an option's value, of the type of its default.

    A whole number is 0 only where that is the default.

    Args:
        what: name of the option, for the sentence of an error.
        default: the option's default.
        text: a user's text.

    Raises:
        ConfigurationError: the text is not such a value.
    """
    if isinstance(default, StrEnum):
        return word(what, default, text)
    if isinstance(default, bool):
        if text not in _SWITCH:
            raise ConfigurationError(f"{what} must be on or off, not {text!r}")
        return _SWITCH[text]
    if isinstance(default, float):
        try:
            number = float(text)
        except ValueError:
            number = math.nan
        if not (0.0 <= number <= _MOST or number == math.inf):
            raise ConfigurationError(f"{what} must be a number from 0 on or inf, not {text!r}")
        return number
    least = 0 if default == 0 else 1
    if not (text.isascii() and text.isdecimal() and least <= int(text[:11]) <= _MOST):
        raise ConfigurationError(f"{what} must be a whole number from {least} on, not {text!r}")
    return int(text)


def word(what: str, default: StrEnum, value: object) -> StrEnum:
    """Return the word that an option has as its value.

    Args:
        what: name of the option, for the sentence of an error.
        default: one of the option's words.
        value: a user's word.

    Raises:
        ConfigurationError: it is none of the option's words.
    """
    *most, last = allowed = [str(one) for one in type(default)]
    if value not in allowed:
        raise ConfigurationError(f"{what} must be {', '.join(most)} or {last}, not {quoted(value)}")
    return type(default)(value)
