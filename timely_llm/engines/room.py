"""Room for the KV of one step, and who gives it up."""

from __future__ import annotations

from collections.abc import Iterable

from timely_llm.engines.track import Track


def rounded(tokens: int, block_tokens: int) -> int:
    """Return how many tokens the blocks can hold that so many tokens need."""
    return -(-tokens // block_tokens) * block_tokens


class Room:
    """What the rows of a step can still take.

    Args:
        free_tokens: what was free when the plan was made; negative if rows before began blocks
            that held more than that.
        spare_tokens: what the blocks can take beyond it.
        block_tokens: tokens of a block.
        victims: who can give up KV, in this order.
    """

    def __init__(
        self, free_tokens: int, spare_tokens: int, block_tokens: int, victims: Iterable[Track]
    ) -> None:
        self._planned = max(free_tokens, 0)
        self._stored = free_tokens + spare_tokens
        self._block_tokens = block_tokens
        self._victims = list(victims)

    @property
    def tokens(self) -> int:
        """Tokens that can be had."""
        return self._planned + sum(map(self._tokens_of, self._victims))

    def take(self, track: Track, tokens: int) -> list[Track] | None:
        """Take room for so many more tokens of a sequence.

        Returns:
            Who must give up all KV for it; None if there is no room even then.
        """
        block = self._block_tokens
        kv_tokens = track.kv_tokens
        begun = rounded(kv_tokens + tokens, block) - rounded(kv_tokens, block)
        if not begun:  # what fits into its own last block costs nothing
            return []
        cost = tokens if tokens < begun else begun  # a plan knows nothing of blocks
        lacking = max(cost - self._planned, begun - self._stored)
        if lacking > 0 and lacking > sum(map(self._tokens_of, self._victims)):
            return None
        evicted = []
        while lacking > 0:
            victim = self._victims.pop(0)
            evicted.append(victim)
            freed = self._tokens_of(victim)
            lacking -= freed
            self._planned += freed
            self._stored += freed
        self._planned -= cost
        self._stored -= begun
        return evicted

    def _tokens_of(self, track: Track) -> int:
        return rounded(track.kv_tokens, self._block_tokens)
