"""Learned lengths of segments and answers: no length is known before it is generated."""

from __future__ import annotations

import math
from bisect import bisect_right, insort
from collections import deque
from collections.abc import Hashable, Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple

from timely_llm.core.generation import PlanGeneration
from timely_llm.core.request import PlanRequest, Request, StreamRequest


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

TYPICAL = 0.5
"""Quantile of the lengths of a class that is expected of the next one."""

CLASSES = 64
"""Most classes that are kept; the least recently seen one is dropped."""

_REMEMBERED = 256
_LONGER = 1.25
"""Expected length of an answer beyond all seen ones, relative to its present length."""


class RecentLengths:
    """The last lengths of each class, in order of length.

    Clients choose what a class is made of, so the number of classes is bounded.

    Attributes:
        version: changes when a class comes or goes; until then, what `of` has returned stays right.
    """

    def __init__(self) -> None:
        self.version = 0
        self._order: dict[Hashable, deque[int]] = {}
        self._sorted: dict[Hashable, list[int]] = {}

    def of(self, of_class: Hashable) -> Sequence[int]:
        """Return the lengths of a class, the shortest first."""
        return self._sorted.get(of_class, ())

    def observe(self, of_class: Hashable, tokens: int) -> None:
        """Learn a length of a class, tokens."""
        order = self._order.pop(of_class, None)
        if order is None:
            order = deque()
            self.version += 1
            if len(self._order) == CLASSES:
                oldest = next(iter(self._order))
                del self._order[oldest], self._sorted[oldest]
        self._order[of_class] = order  # now the last one
        lengths = self._sorted.setdefault(of_class, [])
        if len(order) == _REMEMBERED:
            del lengths[bisect_right(lengths, order.popleft()) - 1]
        order.append(tokens)
        insort(lengths, tokens)


def task_type(request: Request) -> Hashable:
    """Return the class of a whole answer.

    It is the skill set and the worth in time of a plan, or the SLO and the weight of a stream.
    """
    if isinstance(request, PlanRequest):
        return request.skill_set, request.time_utility.beta
    assert isinstance(request, StreamRequest)
    return request.slo, request.weight


class AnswerLengths(RecentLengths):
    """Lengths of whole answers, by class (see `task_type`)."""

    def knows(self, of_class: Hashable) -> bool:
        """Return whether enough lengths of a class were seen."""
        return len(self.of(of_class)) >= ENOUGH

    def to_go(
        self, of_class: Hashable, out: int, bound: int, share: float, enough: int = ENOUGH
    ) -> int:
        """Return a quantile of the tokens to come of an answer of a class; see `to_go`."""
        return to_go(self.of(of_class), out, bound, share, enough)


def to_go(seen: Sequence[int], out: int, bound: int, share: float, enough: int = ENOUGH) -> int:
    """Return a quantile of the tokens to come of an answer, at least 1.

    Args:
        seen: lengths of its class, the shortest first; only those above `out` count.
        out: tokens that were generated.
        bound: declared most tokens of the answer: never exceeded, and expected until enough
            lengths of the class were seen.
        share: the quantile, below 1.
        enough: least lengths of the class.
    """
    expected = bound
    if len(seen) >= enough:
        place = bisect_right(seen, out)
        longer = len(seen) - place
        expected = seen[place + int(share * longer)] if longer else int(_LONGER * out) + 1
        if expected > bound:
            expected = bound
    return expected - out if expected > out else 1


class Outlook(NamedTuple):
    """Distribution of the tokens to go of a segment.

    Attributes:
        lengths: (tokens to go, probability); the probabilities add up to 1.
        mean: expected tokens to go.
    """

    lengths: tuple[tuple[float, float], ...]
    mean: float


def outlook(*lengths: tuple[float, float]) -> Outlook:
    """Return a distribution of (tokens to go, probability)."""
    # Products of two floats are faster than those of an int and a float.
    floats = tuple([(float(tokens), chance) for tokens, chance in lengths])
    return Outlook(floats, sum([tokens * chance for tokens, chance in floats]))


_SHARES = (1 / 6, 1 / 2, 5 / 6)


@lru_cache(maxsize=1024)
def _alike(*lengths: int) -> Outlook:
    """Return the distribution of lengths that are equally likely."""
    chances: dict[int, float] = {}
    for tokens in lengths:
        chances[tokens] = chances.get(tokens, 0.0) + 1.0 / len(lengths)
    return outlook(*chances.items())


class SegmentLengths(RecentLengths):
    """Lengths of segments, by class: skill set, utility, and first or later segment.

    It returns a distribution of three quantiles, since one number cannot describe two common
    lengths.

    Args:
        prior: tokens of a segment, until eight of its class were seen.
    """

    def __init__(self, prior: int) -> None:
        super().__init__()
        self._prior = prior
        self._known: dict[Hashable, dict[int, Outlook]] = {}
        # Plans of the last batch, and the segments and tokens that each had delivered.
        self._watched: list[tuple[PlanGeneration, int, int]] = []

    def to_go(self, generation: PlanGeneration) -> Outlook:
        """Return the distribution of the tokens to the next boundary.

        These are quantiles of the class's lengths above the tokens that were generated.
        """
        request = generation.request
        of_class = request.skill_set, request.time_utility.beta, not generation.segments
        known = self._known.get(of_class)
        if known is None:
            if len(self._known) == CLASSES:
                self._known.clear()
            known = self._known[of_class] = {}
        out = generation.segment_tokens
        seen = known.get(out)
        if seen is None:
            seen = known[out] = self._estimate(of_class, out)
        return seen

    def observe(self, of_class: Hashable, tokens: int) -> None:
        """Learn a length of a class, tokens."""
        super().observe(of_class, tokens)
        self._known.pop(of_class, None)

    def watch(self, batch: Iterable[PlanGeneration]) -> None:
        """Learn from the segments of the last batch, and remember the state of this one."""
        for g, segments, tokens in self._watched:
            made = len(g.segments) - segments
            if made > 0:
                said = len(g.token_ids) - g.segment_tokens - tokens
                of_class = g.request.skill_set, g.request.time_utility.beta, not segments
                self.observe(of_class, max(round(said / made), 1))
        self._watched = [(g, len(g.segments), len(g.token_ids) - g.segment_tokens) for g in batch]

    def _estimate(self, of_class: Hashable, out: int) -> Outlook:
        seen = self.of(of_class)
        place = bisect_right(seen, out)
        longer = len(seen) - place
        if len(seen) < ENOUGH or not longer:
            return _alike(max(self._prior - out, 1))
        return _alike(*[seen[place + int(share * longer)] - out for share in _SHARES])
