"""The sequences that an engine knows, and its pinned prefixes."""

from __future__ import annotations

import math
from collections.abc import Sequence

from timely_llm.core.errors import EngineError
from timely_llm.engines.contract import GREEDY, Decoding, Prefix
from timely_llm.engines.track import Limits, Track


class Sequences:
    """Sequences by key, and what is pinned; what of it is computed is for `Ledger` to say.

    Args:
        limits: what the engine can take.
        block_tokens: KV is stored, shared and given back in blocks of so many tokens.
    """

    def __init__(self, limits: Limits, block_tokens: int) -> None:
        self.limits = limits
        self.block_tokens = block_tokens
        self._tracks: dict[str, Track] = {}
        self._prefixes: dict[tuple[int, ...], Prefix] = {}
        self._pinned_tokens = 0
        self._prepared: tuple[int, ...] | None = None

    def __getitem__(self, key: str) -> Track:
        if key not in self._tracks:
            raise EngineError(f"the engine knows no sequence {key!r}")
        return self._tracks[key]

    def prefix(self, token_ids: Sequence[int]) -> Prefix | None:
        """Return the pinned prefix of these tokens, if there is one."""
        return self._prefixes.get(tuple(token_ids))

    def pin(self, token_ids: Sequence[int]) -> Prefix:
        """Enter a prefix whose room is reserved; see `Ledger.reserve`."""
        prefix = Prefix(tuple(token_ids))
        self._prefixes[prefix.token_ids] = prefix
        self._prepared = None
        return prefix

    def unpin(self, token_ids: Sequence[int]) -> Prefix | None:
        """Forget a prefix, and free the room of one that is reserved; return it if it was pinned.

        Raises:
            EngineError: a sequence begins with it.
        """
        ids = tuple(token_ids)
        prefix = self._prefixes.get(ids)
        users = sum(track.prefix == prefix for track in self._tracks.values()) if prefix else 0
        if users:
            raise EngineError(f"{users} sequences begin with the prefix: remove them first")
        if prefix is None and ids != self._prepared:
            return None
        if prefix is None:
            self._prepared = None
        self._prefixes.pop(ids, None)
        self._pinned_tokens -= self.whole_blocks(len(ids))
        return prefix

    def add(
        self,
        key: str,
        token_ids: Sequence[int],
        prefix: Prefix | None,
        decoding: Decoding = GREEDY,
    ) -> Track:
        """Enter a sequence.

        Raises:
            EngineError: the key is taken, the prompt is too short or too long, the prefix is not
                pinned here or not its beginning, or the temperature is impossible.
        """
        if key in self._tracks:
            raise EngineError(f"the engine has a sequence {key!r} already")
        begins = len(prefix.token_ids) if prefix else 0
        if prefix and begins and self.prefix(prefix.token_ids) is None:
            raise EngineError(f"the prefix of {key!r} is not pinned in this engine")
        if prefix and tuple(token_ids[:begins]) != prefix.token_ids:
            raise EngineError(f"the prompt of {key!r} does not begin with its prefix")
        if len(token_ids) <= begins:
            raise EngineError(
                f"the prompt of {key!r} has {len(token_ids)} tokens, it must have more than the"
                f" {begins} of its prefix"
            )
        _check_decoding(decoding)
        self._check_length(f"the prompt of {key!r}", len(token_ids))
        shared = self.whole_blocks(begins)
        own = prefix if shared else None
        track = Track(key, list(token_ids), own, shared, shared, begins, decoding)
        self._tracks[key] = track
        return track

    def append(self, key: str, token_ids: Sequence[int], drop: int = 0) -> Track:
        """Add outside words to a sequence, in the place of its newest token if `drop` is 1.

        Raises:
            EngineError: the key is unknown, the sequence would be too long, or its newest token
                was computed or not generated.
        """
        track = self[key]
        if drop not in (0, 1):
            raise EngineError(f"only the newest token can be dropped, not {drop} tokens")
        if drop and not (track.fresh and token_ids):
            raise EngineError(
                f"{key!r} has no generated token that was not computed, to put words in its place"
            )
        tokens = len(track.token_ids) - drop + len(token_ids)
        self._check_length(f"{key!r} with what it is given", tokens)
        track.strike_out()
        track.token_ids[len(track.token_ids) - drop :] = token_ids
        if token_ids:
            track.fresh = 0
        return track

    def take_back(self, key: str, tokens: int) -> Track:
        """Forget the newest tokens of a sequence, and what steps in flight would bring it.

        The token before them is not computed then.

        Raises:
            EngineError: the key is unknown, or its last step has not generated more than so many.
        """
        track = self[key]
        if tokens and not 0 < tokens < track.fresh:
            raise EngineError(
                f"{tokens} tokens of {key!r} cannot be taken back: its last step has {track.fresh}"
                " new ones, of which one must stay"
            )
        track.strike_out()
        if tokens:
            del track.token_ids[-tokens:]
            track.fresh -= tokens
            track.computed = min(track.computed, len(track.token_ids) - 1)
            track.reached = min(track.reached, len(track.token_ids))
        return track

    def resume(self, key: str, new_key: str, token_ids: Sequence[int], decoding: Decoding) -> Track:
        """Add outside words to a sequence and give it another name.

        Raises:
            EngineError: the key is unknown, the new one is taken, there are no words, the sequence
                would be too long, or the decoding is not possible; nothing has changed then.
        """
        if new_key in self._tracks:
            raise EngineError(f"the engine has a sequence {new_key!r} already")
        if not token_ids:
            raise EngineError(f"{key!r} cannot go on without words")
        if decoding.grammar is not None:
            raise EngineError(f"{key!r} has said something already: no grammar can begin there")
        _check_decoding(decoding)
        track = self.append(key, token_ids)
        del self._tracks[key]
        self._tracks[new_key] = track
        track.key, track.decoding = new_key, decoding
        return track

    def remove(self, key: str) -> Track | None:
        """Forget a sequence; return it if it was there."""
        track = self._tracks.pop(key, None)
        if track is not None:
            track.strike_out()
        return track

    def clear(self) -> None:
        """Forget everything."""
        self._tracks.clear()
        self._prefixes.clear()
        self._pinned_tokens = 0
        self._prepared = None

    def whole_blocks(self, tokens: int) -> int:
        """Return how many of so many tokens fill whole blocks; only these can be shared."""
        return tokens // self.block_tokens * self.block_tokens

    def _check_length(self, what: str, tokens: int) -> None:
        if tokens >= self.limits.max_model_len:
            raise EngineError(
                f"{what} has {tokens} tokens, it must have fewer than max_model_len,"
                f" {self.limits.max_model_len}"
            )


def _check_decoding(decoding: Decoding) -> None:
    if not (math.isfinite(decoding.temperature) and decoding.temperature >= 0):
        raise EngineError(f"the temperature must be 0 or more, not {decoding.temperature}")
