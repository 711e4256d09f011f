"""An engine's books: whose KV a step may store or must give up, and what it did.

Nothing here computes; the engines that keep their own KV share it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from timely_llm.core.errors import EngineError
from timely_llm.engines.contract import StepResult
from timely_llm.engines.plan_check import check_plan
from timely_llm.engines.room import Room, rounded
from timely_llm.engines.sequences import Sequences
from timely_llm.engines.track import Admission, Limits, Part, Track
from timely_llm.policies.contract import Capacity, StepPlan


class Ledger(Sequences):
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
        super().__init__(limits, block_tokens)
        self._guesses = guesses
        self._ahead = ahead
        self._spare_tokens = min(limits.max_rows, limits.max_step_tokens) * block_tokens
        self._evicted: list[str] = []

    @property
    def capacity(self) -> Capacity:
        """What the next step can take."""
        limits, free = self.limits, max(self._free_tokens, 0)
        return Capacity(
            free, limits.max_rows, limits.max_step_tokens, limits.max_model_len, self._guesses
        )

    def reserve(self, token_ids: Sequence[int]) -> None:
        """Take the room of a prefix that will be pinned; once more for the same one is nothing.

        Raises:
            EngineError: it is too long, there is no room for its KV, or another prefix is being
                prepared.
        """
        ids, tokens = tuple(token_ids), len(token_ids)
        if ids == self._prepared:
            return
        if self._prepared is not None:
            raise EngineError("another prefix is being prepared: pin it or give it up first")
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
        self._pinned_tokens += self.whole_blocks(tokens)
        self._prepared = ids

    def give_up(self, track: Track) -> None:
        """Enter that a sequence's own KV is gone; the next result tells of it."""
        track.strike_out()
        track.computed = track.shared
        self._evicted.append(track.key)

    def clear(self) -> None:
        """Forget everything."""
        super().clear()
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
        victims = [
            self._tracks[key]
            for key in dict.fromkeys(plan.evictable)
            if key in self._tracks and key not in plan.keys and self._can_give(self._tracks[key])
        ]
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
        block, blocks = self.block_tokens, 0
        for track in self._tracks.values():
            blocks -= (track.shared - track.computed) // block
        return self.limits.kv_tokens - self._pinned_tokens - blocks * block

    def _to_compute(self, key: str) -> int | None:
        track = self._tracks.get(key)
        return None if track is None else self._can_compute(track)

    def _can_compute(self, track: Track) -> int:
        return track.to_compute if self._ahead else track.to_compute - track.coming

    @staticmethod
    def _can_give(track: Track) -> bool:
        return track.kv_tokens > 0 and not (track.under_way or track.loading)
