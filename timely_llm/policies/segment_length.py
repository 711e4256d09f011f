"""How long segments are, learned from those that are made."""

from __future__ import annotations

from collections.abc import Iterable

from timely_llm.core.generation import PlanGeneration, State

_WINDOW = 500


class SegmentLength:
    """The mean tokens of a segment.

    With the time of a step it makes G of paper 001, Eq. 4, "the average generation time calculated
    from profiling data": here the profile is what was generated since the start.

    Args:
        mean_tokens: what is believed before any segment was seen.
        weight: how many segments this belief counts for; infinite: nothing is learned.

    Attributes:
        mean_tokens: the mean so far. Of very many segments, the newest count more.
    """

    def __init__(self, mean_tokens: float, weight: float = 20.0) -> None:
        self.mean_tokens = mean_tokens
        self._weight = weight
        self._most = max(weight, _WINDOW)
        self._watched: list[tuple[PlanGeneration, int, int]] = []

    def observe(self, tokens: int, segments: int = 1) -> None:
        """Learn from some segments that have so many tokens together."""
        self._weight = min(self._weight + segments, self._most)
        self.mean_tokens += (tokens - segments * self.mean_tokens) / self._weight

    def watch(self, batch: Iterable[PlanGeneration]) -> None:
        """Learn what the last batch has made since, and remember where this one stands.

        Whoever is in no batch makes nothing, so nobody else has to be looked at.
        """
        for generation, segments, tokens in self._watched:
            made = len(generation.segments) - segments
            if made > 0 and (said := _tokens(generation) - tokens) > 0:
                self.observe(said, made)
        self._watched = [(g, len(g.segments), _tokens(g)) for g in batch]


def _tokens(generation: PlanGeneration) -> int:
    """Return the tokens of all segments so far; the end of a plan belongs to its last one."""
    tokens = len(generation.token_ids)
    return tokens if generation.state is State.ENDED else tokens - generation.segment_tokens
