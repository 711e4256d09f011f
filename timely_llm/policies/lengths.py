"""How many tokens a segment has still to come: learned, never known before it is generated."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Hashable, Iterable

from timely_llm.core.generation import PlanGeneration

Outlook = tuple[tuple[int, float], ...]
"""(tokens to go, how probable): the probabilities add up to 1."""

_ENOUGH = 8
_REMEMBERED = 256
CLASSES = 64
"""So many classes are remembered; the one of which nothing was seen for longest is forgotten."""
_SHARES = (1 / 6, 1 / 2, 5 / 6)


class Lengths:
    """Lengths of segments, by class: a skill set's first or later ones of one urgency.

    What is asked of it is a distribution, not a number: of two lengths that are both common, the
    longer one is no certainty, and the shorter one no promise. Three quantiles stand for it.
    Clients make classes: each utility is one. So only the latest ones are kept.

    Args:
        guess: tokens of a segment, until eight of its class were seen.
        learn: whether anything is learned at all.
    """

    def __init__(self, guess: int, learn: bool = True) -> None:
        self._guess = guess
        self._learn = learn
        self._seen: dict[Hashable, deque[int]] = {}
        self._known: dict[Hashable, dict[int, Outlook]] = {}
        self._watched: list[tuple[PlanGeneration, Hashable, int, int]] = []

    def to_go(self, generation: PlanGeneration) -> Outlook:
        """Return how many tokens are to come to the next boundary.

        Quantiles of the class's lengths that exceed what is out already.
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
        """Learn from a segment of so many tokens."""
        seen = self._seen.pop(of_class, None)
        if seen is None:
            seen = deque(maxlen=_REMEMBERED)
            if len(self._seen) == CLASSES:
                del self._seen[next(iter(self._seen))]
        seen.append(tokens)
        self._seen[of_class] = seen  # now the last one
        self._known.pop(of_class, None)

    def watch(self, batch: Iterable[PlanGeneration]) -> None:
        """Learn what the last batch has made since, and remember where this one stands."""
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
            return ((max(self._guess - out, 1), 1.0),)
        chances: dict[int, float] = {}
        for share in _SHARES:
            tokens = longer[int(share * len(longer))] - out
            chances[tokens] = chances.get(tokens, 0.0) + 1.0 / len(_SHARES)
        return tuple(chances.items())


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
