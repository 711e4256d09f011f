"""An engine's books: which sequences it knows, and whose KV a step may store or must give up.

Nothing here computes; the engines that keep their own KV share it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from timely_llm.core.errors import EngineError
from timely_llm.engines.contract import GREEDY, Decoding, Prefix, StepResult
from timely_llm.engines.plan_check import check_plan
from timely_llm.engines.room import Room, rounded
from timely_llm.engines.track import Admission, Limits, Part, Track
from timely_llm.policies.contract import Capacity, StepPlan


class Ledger:
    """Sequences by key, pinned prefixes, and the KV they fill.

    Args:
        limits: what the engine can take.
        block_tokens: KV is stored, shared and given back in blocks of so many tokens. A plan knows
            nothing of blocks: those that its rows begin may hold more than was free. Each row has
            a spare block for that, and what is owed counts as taken in the steps that follow.
        guesses: most tokens that the engine guesses for a sequence in a step.
        ahead: whether a sequence can take part in a step before its newest token has come.
    """

    def __init__(
        self, limits: Limits, block_tokens: int = 1, guesses: int = 0, ahead: bool = False
    ) -> None:
        self.limits = limits
        self._guesses = guesses
        self._ahead = ahead
        self.block_tokens = block_tokens
        self._spare_tokens = min(limits.max_rows, limits.max_step_tokens) * block_tokens
        self._tracks: dict[str, Track] = {}
        self._prefixes: dict[tuple[int, ...], Prefix] = {}
        self._pinned_tokens = 0
        self._evicted: list[str] = []

    @property
    def capacity(self) -> Capacity:
        """What the next step can take."""
        limits, free = self.limits, max(self._free_tokens, 0)
        return Capacity(
            free, limits.max_rows, limits.max_step_tokens, limits.max_model_len, self._guesses
        )

    def __getitem__(self, key: str) -> Track:
        if key not in self._tracks:
            raise EngineError(f"the engine knows no sequence {key!r}")
        return self._tracks[key]

    def prefix(self, token_ids: Sequence[int]) -> Prefix | None:
        """Return the pinned prefix of these tokens, if there is one."""
        return self._prefixes.get(tuple(token_ids))

    def check_prefix(self, tokens: int) -> None:
        """Find out whether a prefix of so many tokens can be pinned.

        Raises:
            EngineError: it is too long, or there is no room for its KV.
        """
        if tokens >= self.limits.max_model_len:
            raise EngineError(
                f"a prefix of {tokens} tokens leaves no room for a task: it must be shorter than"
                f" max_model_len, {self.limits.max_model_len}"
            )
        if tokens > self._free_tokens:
            raise EngineError(
                f"no room to pin a prefix of {tokens} tokens, {self._free_tokens} are free:"
                f" raise kv_tokens, now {self.limits.kv_tokens}"
            )

    def pin(self, token_ids: Sequence[int]) -> Prefix:
        """Enter a prefix that `check_prefix` found possible."""
        prefix = Prefix(tuple(token_ids))
        self._prefixes[prefix.token_ids] = prefix
        self._pinned_tokens += self.whole_blocks(len(token_ids))
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

    def whole_blocks(self, tokens: int) -> int:
        """Return how many of so many tokens fill whole blocks; only these can be shared."""
        return tokens // self.block_tokens * self.block_tokens

    def give_up(self, track: Track) -> None:
        """Enter that a sequence's own KV is gone; the next result tells of it."""
        track.strike_out()
        track.computed = track.shared
        self._evicted.append(track.key)

    def clear(self) -> None:
        """Forget everything."""
        self._tracks.clear()
        self._prefixes.clear()
        self._pinned_tokens = 0
        self._evicted.clear()

    def spare_tokens(self, plan: StepPlan) -> int:
        """Return the KV that a plan of known sequences leaves free, in whole blocks."""
        tracks = ((self._tracks.get(key), wanted) for key, wanted in plan.entries)
        needed = sum(
            rounded(min(wanted, track.to_compute), self.block_tokens)
            for track, wanted in tracks
            if track is not None
        )
        return self._free_tokens - needed

    def admit(
        self, plan: StepPlan, fetch: Callable[[Part, int], Part | None] | None = None
    ) -> Admission:
        """Return what of a plan can be carried out, giving up evictable KV where it must be.

        A sequence whose KV is on its way is left out.

        Args:
            plan: the plan.
            fetch: if KV can be fetched: takes a part and the tokens that the plan has for it, and
                returns the part of the step, or None if its KV comes later.

        Raises:
            EngineError: the plan names an unknown sequence or one twice, or breaks a limit.
        """
        check_plan(plan, self._to_compute, self.limits)
        victims = (
            self._tracks[key]
            for key in dict.fromkeys(plan.evictable)
            if key in self._tracks and key not in plan.keys and self._can_give(self._tracks[key])
        )
        limits = self.limits
        room = Room(self._free_tokens, self._spare_tokens, self.block_tokens, victims)
        parts: list[Part] = []
        evicted: list[Track] = []
        failures: dict[str, str] = {}
        for key, wanted in plan.entries:
            track = self._tracks[key]
            if track.loading:
                continue
            tokens = min(wanted, self._can_compute(track))
            if len(track.token_ids) + track.coming >= limits.max_model_len:
                most = limits.max_model_len
                failures[key] = f"the sequence has {most} tokens, the most a sequence may have"
                continue
            given_up = room.take(track, tokens)
            if given_up is None:
                failures[key] = (
                    f"no room for the KV of {tokens} tokens: {room.tokens} of {limits.kv_tokens}"
                    " can be had"
                )
                continue
            for victim in given_up:
                self.give_up(victim)
            evicted += given_up
            asked = Part.of(track, track.computed, tokens)
            part = fetch(asked, wanted) if fetch else asked
            if part is not None:
                parts.append(part)
        return Admission(tuple(parts), tuple(evicted), failures)

    def start(self, admission: Admission) -> None:
        """Enter that a step is in flight: others can be admitted before it is committed."""
        for track, _, tokens, finishes, _, loaded in admission.parts:
            track.computed += tokens + loaded
            track.under_way += 1
            track.coming += finishes

    def lose(self, part: Part) -> None:
        """Enter that what a part of a step in flight was to fetch did not come."""
        part.track.strike_out()
        part.track.computed = part.start - part.loaded

    def commit(
        self,
        admission: Admission,
        new_tokens: Mapping[str, Sequence[int]],
        duration_s: float,
        guessed: Mapping[str, int] | None = None,
    ) -> StepResult:
        """Enter what a step did and return its result.

        Args:
            admission: what was carried out.
            new_tokens: the new tokens of each sequence whose part `finishes`: one, and before it
                what was guessed right.
            duration_s: seconds it took.
            guessed: how many tokens were guessed, by key.
        """
        computed: dict[str, int] = {}
        recomputed = {}
        # Also those of a step before that broke down and had no result.
        told, self._evicted = tuple(self._evicted), []
        for part in admission.parts:
            if not part.live:
                continue
            track, start, tokens, finishes, *_ = part
            stop = start + tokens
            if track.under_way:
                track.under_way -= 1
                track.coming -= finishes
            if finishes:
                said = new_tokens[track.key]
                track.token_ids += said
                track.fresh = len(said)
                stop += len(said) - 1
            if start < track.reached:
                recomputed[track.key] = min(stop, track.reached) - start
            track.computed = max(track.computed, stop)
            track.reached = max(track.reached, stop)
            computed[track.key] = stop - start
        return StepResult(
            tokens=new_tokens,
            computed=computed,
            duration_s=duration_s,
            recomputed=recomputed,
            evicted=told,
            failures=admission.failures,
            guessed=guessed or {},
        )

    @property
    def _free_tokens(self) -> int:
        block = self.block_tokens
        stored = sum(rounded(track.kv_tokens, block) for track in self._tracks.values())
        return self.limits.kv_tokens - self._pinned_tokens - stored

    def _check_length(self, what: str, tokens: int) -> None:
        if tokens >= self.limits.max_model_len:
            raise EngineError(
                f"{what} has {tokens} tokens, it must have fewer than max_model_len,"
                f" {self.limits.max_model_len}"
            )

    def _to_compute(self, key: str) -> int | None:
        track = self._tracks.get(key)
        return None if track is None else self._can_compute(track)

    def _can_compute(self, track: Track) -> int:
        return track.to_compute if self._ahead else track.to_compute - track.coming

    @staticmethod
    def _can_give(track: Track) -> bool:
        return track.kv_tokens > 0 and not (track.under_way or track.loading)


def _check_decoding(decoding: Decoding) -> None:
    if not (math.isfinite(decoding.temperature) and decoding.temperature >= 0):
        raise EngineError(f"the temperature must be 0 or more, not {decoding.temperature}")
