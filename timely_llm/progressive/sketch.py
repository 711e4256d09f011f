"""A sketch: the short outline of an answer or a plan that another model expands."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Part:
    """One part of a sketch: a sentence of an answer, or a step of a plan.

    Attributes:
        index: number of the part, from 0, without gaps.
        text: its words, on one line.
    """

    index: int
    text: str

    @property
    def words(self) -> int:
        """Words of the text."""
        return len(self.text.split())


@dataclass(frozen=True)
class Sketch:
    """What is known of a sketch.

    Attributes:
        parts: the complete parts, in order.
        expected_tokens: length of the whole answer, as the author of the sketch expects it, tokens;
            0: unknown.
        final: whether no part follows.
    """

    parts: tuple[Part, ...] = ()
    expected_tokens: int = 0
    final: bool = False
