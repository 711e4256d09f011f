"""Answers in parts: the model's own text, and the tool output that the server appends.

A blocking skill ends a phase: the model writes `look();`, the server appends what the robot saw as
`=> red cup, blue ball` and a line end, and the model goes on. Tool output is context of the
answer, not the model's words.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

OUTSIDE = re.compile(r"(=> [^\n]*\n)")
NOTHING = "nothing"


@dataclass(frozen=True)
class Part:
    """A stretch of an answer; `ours` if the model wrote it."""

    text: str
    ours: bool


def outside(names: Sequence[str]) -> str:
    """Return the tool output of a robot that saw `names`."""
    return f"=> {', '.join(names) or NOTHING}\n"


def parts_of(answer: str) -> tuple[Part, ...]:
    """Return the parts of an answer, in order."""
    texts = OUTSIDE.split(answer)
    return tuple(Part(text, index % 2 == 0) for index, text in enumerate(texts) if text)


def own_words(answer: str) -> str:
    """Return what of an answer the model writes: the plan."""
    return OUTSIDE.sub("", answer)


def outside_words(answer: str) -> list[str]:
    """Return the tool outputs of an answer, in order."""
    found: list[str] = OUTSIDE.findall(answer)
    return found
