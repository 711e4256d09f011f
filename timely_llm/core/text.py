"""Which texts are taken: Unicode that every part of the system can store, send and print."""

from __future__ import annotations

import re

_NO_CHARACTER = re.compile("[\ud800-\udfff]")
_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
_LINE = re.compile("[\t\n\r\x0b\x0c\x1c-\x1e\x85\u2028\u2029]")


def text_problem(what: str, text: str) -> str | None:
    """Return what is wrong with a text and what is allowed, or None if it is fine.

    A lone surrogate is no character: no tokenizer, message or file takes it. ROS ends a text at its
    first NUL, and other control characters move a terminal's cursor: of these, texts have tabs and
    line ends only.

    Args:
        what: what the sentence calls the text.
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
    """Return what is wrong with a name and what is allowed, or None if it is fine.

    A name stands within one line of a log: it has no line ends or tabs either.
    """
    problem = text_problem(what, name)
    found = _LINE.search(name)
    if problem is None and found is not None:
        problem = f"{what} holds {found[0]!a} at place {found.start()}: it must be one line"
    return problem


def sendable(text: str) -> str:
    """Return a text that every message and file takes: what cannot be encoded is escaped."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8").replace("\0", "\\0")
