"""Rouge-1: the words that two texts share (Lin 2004)."""

from __future__ import annotations

import re
from collections import Counter
from typing import NamedTuple

_WORD = re.compile(r"\w+")


class Rouge(NamedTuple):
    """How far the words of a text are those of a reference, each word as often as it occurs.

    Attributes:
        precision: shared words over the words of the text.
        recall: shared words over the words of the reference.
    """

    precision: float
    recall: float

    @property
    def f1(self) -> float:
        """Harmonic mean of precision and recall."""
        both = self.precision + self.recall
        return 2.0 * self.precision * self.recall / both if both else 0.0


def rouge_1(text: str, reference: str) -> Rouge:
    """Return the overlap of single words; case and punctuation do not count, a stem does."""
    theirs, ours = (Counter(_WORD.findall(one.casefold())) for one in (reference, text))
    shared = (theirs & ours).total()
    return Rouge(shared / ours.total() if ours else 0.0, shared / theirs.total() if theirs else 0.0)
