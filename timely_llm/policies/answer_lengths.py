"""How many tokens an answer has still to come: learned, and bounded by what is declared."""

from __future__ import annotations

from bisect import bisect_right, insort
from collections import deque
from collections.abc import Hashable

ENOUGH = 8
"""Of fewer lengths nothing is learned."""
_REMEMBERED = 256
_LONGER = 1.25
"""Who has more tokens than all that were seen will have so many times what it has."""
_GOLDEN = 0.6180339887498949


class AnswerLengths:
    """Lengths of whole answers, by class.

    Answers that are given up end much later than others, or never. If only those counted that have
    ended, the short ones alone would be learned. So an answer counts as soon as it is given up,
    with a length that it may well have; its true length takes the place of that when it ends.
    """

    def __init__(self) -> None:
        self._order: dict[Hashable, deque[int]] = {}
        self._sorted: dict[Hashable, list[int]] = {}
        self._share = 0.0

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
        if len(self._sorted.get(of_class, ())) >= enough:
            expected = self._quantile(of_class, out, share) or int(_LONGER * out) + 1
        return max(min(expected, bound) - out, 1)

    def observe(self, of_class: Hashable, tokens: int) -> None:
        """Learn from an answer of so many tokens."""
        order = self._order.setdefault(of_class, deque())
        if len(order) == _REMEMBERED:
            self._sorted[of_class].remove(order.popleft())
        order.append(tokens)
        insort(self._sorted.setdefault(of_class, []), tokens)

    def give_up(self, of_class: Hashable, out: int, bound: int) -> int:
        """Learn from an answer whose end is not awaited; return the length that it counts with.

        Quantiles are taken in turn, so that many such answers together are like the others. It does
        not count, 0, while there are none: a bound may be far from any length.
        """
        self._share = (self._share + _GOLDEN) % 1.0
        tokens = min(self._quantile(of_class, out, self._share), bound)
        if tokens:
            self.observe(of_class, tokens)
        return tokens

    def _quantile(self, of_class: Hashable, out: int, share: float) -> int:
        """Return a quantile of the lengths that exceed `out`, 0 if that is not known."""
        seen = self._sorted.get(of_class, ())
        start = bisect_right(seen, out)
        if len(seen) < ENOUGH or start == len(seen):
            return 0
        return seen[start + int(share * (len(seen) - start))]

    def correct(self, of_class: Hashable, counted: int, tokens: int) -> None:
        """Put the true length in the place of the one that an answer counted with."""
        order = self._order.get(of_class, deque())
        if counted in order:
            order.remove(counted)
            self._sorted[of_class].remove(counted)
        self.observe(of_class, tokens)
