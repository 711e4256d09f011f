"""Words from outside, as they may stand in a sentence: short, on one line, and printable."""

from __future__ import annotations

import reprlib

MOST = 80
"""Characters of a name or a value that a sentence repeats."""
SENTENCE = 600
"""Characters of a whole sentence that quotes such words."""
CUT = "..."


def clipped(text: str, most: int = MOST) -> str:
    """Return a text, or the beginning of one that has more than `most` characters."""
    return text if len(text) <= most else text[:most] + CUT


def echoed(text: str, most: int = MOST) -> str:
    r"""Return a text as it may stand in a log line, an error or a result.

    Args:
        text: of any length, from anywhere.
        most: characters that are kept; what is longer ends with three dots.

    Returns:
        One line of valid Unicode. A newline is the two characters `\n`; other control and format
        characters, separators that are no space, and surrogates are escapes too.
    """
    shown = clipped(text, most)
    if shown.isprintable():
        return shown
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in shown)


def quoted(value: object, most: int = MOST) -> str:
    """Return a value in quotes, or as Python writes it, in the same way as `echoed`.

    Args:
        value: a text of any length, or a value of a document; only the beginning of it is looked
            at.
        most: characters that are kept of a text.
    """
    if isinstance(value, str):
        return repr(clipped(value, most))
    return echoed(_limits(most).repr(value), most)


def sentence(words: object) -> str:
    """Return what an error says on one line, of a length that a log can take.

    Args:
        words: an error, or its text. Words that were quoted are short already; this is for those
            that other libraries quote.
    """
    return echoed(" ".join(clipped(str(words), 4 * SENTENCE).split()), SENTENCE)


def listed(names: list[str], most: int = 16) -> str:
    """Return names with commas between them; of many, the first and how many more there are."""
    shown = ", ".join(echoed(name) for name in names[:most])
    more = len(names) - most
    return f"{shown} and {more} more" if more > 0 else shown or "none"


def _limits(most: int) -> reprlib.Repr:
    limits = reprlib.Repr()
    limits.maxstring = limits.maxother = limits.maxlong = most
    return limits
