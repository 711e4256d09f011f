"""Learned lengths of segments and answers: no length is known before it is generated."""

from __future__ import annotations

import math
from bisect import bisect_right, insort
from collections import deque
from collections.abc import Hashable, Iterable
from functools import lru_cache

from timely_llm.core.generation import PlanGeneration


class DecayingMean:
    """Mean and standard deviation of a number over time, weighted to recent times.

    Args:
        window_s: age at which a value counts a third of a new one, seconds; within the first window
            all values count alike.
    """

    def __init__(self, window_s: float) -> None:
        self._window_s = window_s
        self._begin_s = self._seen_s = math.nan
        self._square = 0.0
        self.mean = 0.0

    @property
    def deviation(self) -> float:
        """The standard deviation."""
        return math.sqrt(max(self._square - self.mean * self.mean, 0.0))

    def saw(self, value: float, now: float) -> None:
        """Add the value that the number had since the last call; ignore one that is not finite."""
        if not math.isfinite(value):
            return
        if math.isnan(self._seen_s):
            self._begin_s = self._seen_s = now
        gone_s = now - self._seen_s
        self._seen_s = now
        if gone_s > 0.0:
            share = gone_s / max(min(self._window_s, now - self._begin_s), gone_s)
            self.mean += share * (value - self.mean)
            self._square += share * (value * value - self._square)


ENOUGH = 8
"""Least lengths of a class before it is used."""
_REMEMBERED_ANSWERS = 256
ANSWER_CLASSES = 64
"""Most classes that are kept; the least recently seen one is dropped."""
_LONGER = 1.25
"""Expected length of an answer beyond all seen ones, relative to its present length."""


class AnswerLengths:
    """Lengths of whole answers, by class.

    Each service level is a class. Clients define service levels, so the number of classes is
    bounded.
    """

    def __init__(self) -> None:
        self._order: dict[Hashable, deque[int]] = {}
        self._sorted: dict[Hashable, list[int]] = {}

    def knows(self, of_class: Hashable, enough: int = ENOUGH) -> bool:
        """Return whether enough lengths of a class were seen."""
        return len(self._sorted.get(of_class, ())) >= enough

    def to_go(
        self, of_class: Hashable, out: int, bound: int, share: float, enough: int = ENOUGH
    ) -> int:
        """Return a quantile of the tokens to come, at least 1.

        Args:
            of_class: class of the answer; only its lengths above `out` count.
            out: tokens that were generated.
            bound: declared most tokens of the answer: never exceeded, and expected until enough
                lengths of the class were seen.
            share: the quantile, below 1.
            enough: least lengths of the class.
        """
        expected = bound
        if self.knows(of_class, enough):
            seen = self._sorted[of_class]
            longer = seen[bisect_right(seen, out) :]
            expected = longer[int(share * len(longer))] if longer else int(_LONGER * out) + 1
        return max(min(expected, bound) - out, 1)

    def observe(self, of_class: Hashable, tokens: int) -> None:
        """Learn from an answer with `tokens` tokens."""
        order = self._order.pop(of_class, None)
        if order is None:
            order = deque()
            if len(self._order) == ANSWER_CLASSES:
                oldest = next(iter(self._order))
                del self._order[oldest], self._sorted[oldest]
        self._order[of_class] = order  # now the last one
        if len(order) == _REMEMBERED_ANSWERS:
            self._sorted[of_class].remove(order.popleft())
        order.append(tokens)
        insort(self._sorted.setdefault(of_class, []), tokens)


Outlook = tuple[tuple[int, float], ...]
"""(tokens to go, probability); the probabilities add up to 1."""

_ENOUGH = 8
_REMEMBERED = 256
CLASSES = 64
"""Most classes that are kept; the least recently seen one is dropped."""
_SHARES = (1 / 6, 1 / 2, 5 / 6)


class SegmentLengths:
    """Lengths of segments, by class: skill set, utility, and first or later segment.

    It returns a distribution of three quantiles, since one number cannot describe two common
    lengths. Clients choose utilities, so the number of classes is bounded.

    Args:
        prior: tokens of a segment, until eight of its class were seen.
        learn: whether lengths are learned.
    """

    def __init__(self, prior: int, learn: bool = True) -> None:
        self._prior = prior
        self._learn = learn
        self._seen: dict[Hashable, deque[int]] = {}
        self._known: dict[Hashable, dict[int, Outlook]] = {}
        self._watched: list[tuple[PlanGeneration, Hashable, int, int]] = []

    def to_go(self, generation: PlanGeneration) -> Outlook:
        """Return the distribution of the tokens to the next boundary.

        These are quantiles of the class's lengths above the tokens that were generated.
        """
        of_class = _class(generation)
        known = self._known.get(of_class)
        if known is None:
            if len(self._known) == CLASSES:
                self._known.clear()
            known = self._known[of_class] = {}
        out = generation.segment_tokens
        outlook = known.get(out)
        if outlook is None:
            outlook = known[out] = self._estimate(of_class, out)
        return outlook

    def observe(self, of_class: Hashable, tokens: int) -> None:
        """Learn from a segment with `tokens` tokens."""
        seen = self._seen.pop(of_class, None)
        if seen is None:
            seen = deque(maxlen=_REMEMBERED)
            if len(self._seen) == CLASSES:
                del self._seen[next(iter(self._seen))]
        seen.append(tokens)
        self._seen[of_class] = seen  # now the last one
        self._known.pop(of_class, None)

    def watch(self, batch: Iterable[PlanGeneration]) -> None:
        """Learn from the segments of the last batch, and remember the state of this one."""
        for generation, of_class, segments, tokens in self._watched:
            made = len(generation.segments) - segments
            if made > 0 and self._learn:
                said = _delivered(generation) - tokens
                self.observe(of_class, max(round(said / made), 1))
        self._watched = [(g, _class(g), len(g.segments), _delivered(g)) for g in batch]

    def _estimate(self, of_class: Hashable, out: int) -> Outlook:
        seen = sorted(self._seen.get(of_class, ()))
        longer = seen[bisect_right(seen, out) :]
        if len(seen) < _ENOUGH or not longer:
            return ((max(self._prior - out, 1), 1.0),)
        chances: dict[int, float] = {}
        for share in _SHARES:
            tokens = longer[int(share * len(longer))] - out
            chances[tokens] = chances.get(tokens, 0.0) + 1.0 / len(_SHARES)
        return tuple(chances.items())


@lru_cache(maxsize=1024)
def mean(outlook: Outlook) -> float:
    """Return the expected tokens to go."""
    if len(outlook) == 1:
        return outlook[0][0]
    return sum(tokens * chance for tokens, chance in outlook)


def _class(generation: PlanGeneration) -> Hashable:
    request = generation.request
    return request.skill_set, request.time_utility.beta, not generation.segments


def _delivered(generation: PlanGeneration) -> int:
    """Return the tokens of all segments so far."""
    return len(generation.token_ids) - generation.segment_tokens
