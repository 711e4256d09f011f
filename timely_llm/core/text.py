"""Texts from outside: what is allowed in them, and how sentences and log lines quote them."""

from __future__ import annotations

import re
import reprlib
from collections.abc import Sequence

_NO_CHARACTER = re.compile("[\ud800-\udfff]")
_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
_LINE = re.compile("[\t\n\r\x0b\x0c\x1c-\x1e\x85\u2028\u2029]")


def text_problem(what: str, text: str) -> str | None:
    """Return what is wrong with a text and what is allowed; None: it is valid.

    A lone surrogate is no character: no tokenizer, message or file takes it. ROS ends a text at its
    first NUL, and control characters move a terminal's cursor, so tabs and line ends are the only
    control characters allowed.

    Args:
        what: name of the text in the sentence.
        text: the text.
    """
    for wrong, kind in (
        (_NO_CHARACTER, "which is no character"),
        (_CONTROL, "a control character"),
    ):
        found = wrong.search(text)
        if found is not None:
            return (
                f"{what} holds {found[0]!a} at place {found.start()}, {kind}: allowed are Unicode"
                " characters, tabs and line ends"
            )
    return None


def name_problem(what: str, name: str) -> str | None:
    """Return what is wrong with a name and what is allowed; None: it is valid.

    A name stands within one line of a log, so it has no line ends and no tabs.
    """
    problem = text_problem(what, name)
    found = _LINE.search(name)
    if problem is None and found is not None:
        problem = f"{what} holds {found[0]!a} at place {found.start()}: it must be one line"
    return problem


def sendable(text: str) -> str:
    """Return a text that every message and file takes: characters without encoding are escaped."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8").replace("\0", "\\0")


MOST = 80
"""Most characters of a name or a value that a sentence quotes."""
SENTENCE = 600
"""Most characters of a whole sentence."""
CUT = "..."


def clipped(text: str, most: int = MOST) -> str:
    """Return a text, or the beginning of one that has more than `most` characters."""
    return text if len(text) <= most else text[:most] + CUT


def echoed(text: str, most: int = MOST) -> str:
    r"""Return a text for a log line, an error or a result.

    Args:
        text: any text from outside.
        most: most characters; a longer text ends with three dots.

    Returns:
        One line of valid Unicode. A newline is the two characters `\n`; other control and format
        characters, separators that are no space, and surrogates are escapes too.
    """
    shown = clipped(text, most)
    if shown.isprintable():
        return shown
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in shown)


def quoted(value: object, most: int = MOST) -> str:
    """Return a text in quotes, or another value as Python writes it, clipped like `echoed`.

    Args:
        value: any text, or a value of a document; only its beginning is read.
        most: most characters of a text.
    """
    if isinstance(value, str):
        return repr(clipped(value, most))
    return echoed(_limits(most).repr(value), most)


def sentence(words: object) -> str:
    """Return an error's message as one clipped line.

    Args:
        words: an error, or its text; also of a library that does not clip what it quotes.
    """
    return echoed(" ".join(clipped(str(words), 4 * SENTENCE).split()), SENTENCE)


def count_of(count: int, one: str, many: str = "") -> str:
    """Return a number and its noun: "1 robot", "3 robots"."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def joined(words: Sequence[str]) -> str:
    """Return words as a list in a sentence: "a, b and c"."""
    return " and ".join(filter(None, [", ".join(words[:-1]), *words[-1:]]))


def listed(names: list[str], most: int = 16) -> str:
    """Return names with commas between them: at most `most`, and the number of further ones."""
    shown = ", ".join(echoed(name) for name in names[:most])
    more = len(names) - most
    return f"{shown} and {more} more" if more > 0 else shown or "none"


def _limits(most: int) -> reprlib.Repr:
    limits = reprlib.Repr()
    limits.maxstring = limits.maxother = limits.maxlong = most
    return limits
