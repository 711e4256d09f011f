"""How many tokens an answer has still to come: learned, and bounded by what is declared."""

from __future__ import annotations

from bisect import bisect_right, insort
from collections import deque
from collections.abc import Hashable

ENOUGH = 8
"""Of fewer lengths nothing is learned."""
_REMEMBERED = 256
CLASSES = 64
"""So many classes are remembered; the one of which nothing was seen for longest is forgotten."""
_LONGER = 1.25
"""Who has more tokens than all that were seen will have so many times what it has."""


class AnswerLengths:
    """Lengths of whole answers, by class.

    Clients make classes: each service level is one. So only the latest ones are kept.
    """

    def __init__(self) -> None:
        self._order: dict[Hashable, deque[int]] = {}
        self._sorted: dict[Hashable, list[int]] = {}

    def to_go(
        self, of_class: Hashable, out: int, bound: int, share: float, enough: int = ENOUGH
    ) -> int:
        """Return a quantile of the tokens to come, at least 1.

        Args:
            of_class: lengths of the same class that exceed `out` are what it is taken from.
            out: tokens that are there.
            bound: the declared most tokens of the answer; what is expected until enough of its
                class were seen, and never exceeded.
            share: which quantile, below 1.
            enough: so many lengths must have been seen.
        """
        expected = bound
        seen = self._sorted.get(of_class, ())
        if len(seen) >= enough:
            longer = seen[bisect_right(seen, out) :]
            expected = longer[int(share * len(longer))] if longer else int(_LONGER * out) + 1
        return max(min(expected, bound) - out, 1)

    def observe(self, of_class: Hashable, tokens: int) -> None:
        """Learn from an answer of so many tokens."""
        order = self._order.pop(of_class, None)
        if order is None:
            order = deque()
            if len(self._order) == CLASSES:
                oldest = next(iter(self._order))
                del self._order[oldest], self._sorted[oldest]
        self._order[of_class] = order  # now the last one
        if len(order) == _REMEMBERED:
            self._sorted[of_class].remove(order.popleft())
        order.append(tokens)
        insort(self._sorted.setdefault(of_class, []), tokens)
