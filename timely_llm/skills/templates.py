"""Texts with {fields}, filled in whatever braces the values contain; outside words made safe."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping

MAX_CHARACTERS = 1000
"""Characters of the longest outside words; more are cut off."""

NOTHING = "nothing"

_FIELD = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]*)\}")
_UNSAFE = frozenset(("Cc", "Cs", "Zl", "Zp"))


def check_template(text: str, needed: Iterable[str], more: Iterable[str] = ()) -> str:
    """Return `text` if it has each needed field once, and no others than `more`.

    Raises:
        ValueError: it has not.
    """
    found, wanted = _FIELD.findall(text), list(needed)
    for name in wanted:
        if found.count(name) != 1:
            raise ValueError(f"must contain {{{name}}} once, not {found.count(name)} times")
    for name in found:
        if name not in (allowed := [*wanted, *more]):
            words = ", ".join(f"{{{each}}}" for each in allowed)
            raise ValueError(f"must not contain {{{name}}}: allowed are {words}")
    return text


def fill(template: str, values: Mapping[str, str]) -> str:
    """Return the template with its fields replaced; braces in values mean nothing."""
    return _FIELD.sub(lambda match: values[match[1]], template)


def filled(template: str, text: str) -> str:
    """Return the beginning of `text` that is the template with one field filled in, or nothing."""
    before, after = _FIELD.split(template)[::2]
    if not text.startswith(before):
        return ""
    end = text.find(after, len(before)) if after else len(text)
    return text[: end + len(after)] if end >= 0 else ""


def one_line(text: str, otherwise: str = NOTHING) -> str:
    """Return outside words as one line of at most `MAX_CHARACTERS`, `otherwise` if it is empty.

    What could end the line or cannot be encoded becomes a space.
    """
    cut = text[:MAX_CHARACTERS]
    clean = "".join(" " if unicodedata.category(char) in _UNSAFE else char for char in cut)
    return clean.strip() or otherwise
