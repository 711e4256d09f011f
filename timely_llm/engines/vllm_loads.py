"""KV that is found in vLLM's prefix cache, or brought back by its connectors, and not computed.

Both store KV by what it is of. When a sequence begins, or goes on without its KV, they are asked
what they have. What was found, or is loaded at once, is there in the same step; what comes later
keeps its sequence out of the steps until it is there.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from timely_llm.core.errors import EngineError
from timely_llm.engines.ledger import Ledger
from timely_llm.engines.room import rounded
from timely_llm.engines.track import Admission, Part, Track
from timely_llm.policies.contract import StepPlan

if TYPE_CHECKING:
    from timely_llm.engines.vllm_core import VllmCore

ROOM_S = 5.0
"""How long a step waits for blocks that vLLM still stores or loads, seconds."""


class Loads:
    """The loads of an engine's sequences, in its books and in vLLM.

    Args:
        core: vLLM, with a connector, or with a prefix cache that is used.
        ledger: the books.
        begin: gives vLLM a sequence.
    """

    def __init__(self, core: VllmCore, ledger: Ledger, begin: Callable[[Track, int], None]) -> None:
        self._core = core
        self._ledger = ledger
        self._begin = begin
        self._starting: dict[str, int] = {}
        self._coming: dict[str, int] = {}
        self._told: dict[str, int] = {}
        self._refused: set[str] = set()

    def fetch(self, plan: StepPlan) -> Callable[[Part, int], Part | None]:
        """Return what says how a sequence's part changes with what can be loaded for it.

        Given a part and the tokens that the plan has for it, that returns the part of the step, or
        None if its KV comes later. Loads may fill what the plan leaves of the KV; nobody gives up
        KV for one.
        """
        spare, block = self._ledger.spare_tokens(plan), self._ledger.block_tokens

        def fetched(part: Part, wanted: int) -> Part | None:
            nonlocal spare
            track = part.track
            if not self._core.begins(track.key):
                return part
            if track.key in self._refused:
                self._refused.discard(track.key)
                return part
            self._begin(track, part.start)
            offered, later = self._core.ask(track.key, part.start)
            tokens = min(offered, track.to_compute - 1)
            if tokens < 1 or offered > track.to_compute - (not later):
                return part
            more_tokens = 0 if later else min(wanted, track.to_compute - tokens)
            loaded = Part.of(track, part.start + tokens, more_tokens, tokens)
            more = rounded(loaded.stop, block) - rounded(part.stop, block)
            if more > max(spare, 0):
                return part
            spare -= max(more, 0)
            self._core.take(track.key, offered, later)
            if not later:
                return loaded
            self._starting[track.key] = tokens
            return None

        return fetched

    def start(self, admission: Admission) -> None:
        """Begin the loads that were found, and see that vLLM has the blocks of a step.

        Raises:
            EngineError: it has not, and gets none back in time.
        """
        if self._core.connected:
            self._wait_for_room(admission)
        if self._starting:
            begun = self._core.start(self._starting)
            starting, self._starting = self._starting, {}
            for key, tokens in starting.items():
                if key in begun:
                    track = self._ledger[key]
                    track.computed += tokens
                    track.loading = self._coming[key] = tokens
                else:
                    self._refuse(key)
        elif self._coming and not admission.parts:
            self._core.turn()

    def give_up(self, pinned: Iterable[str]) -> None:
        """Forget the loads that a step which broke down was to begin, and what it left in a cache.

        Args:
            pinned: keys of prefixes, which were computed before.
        """
        for key in self._starting:
            self._core.cancel(key)
        self._starting.clear()
        self._core.forget_found(pinned)

    def settle(self, admission: Admission) -> None:
        """Enter what a step brought; parts whose KV could not be loaded are struck out."""
        for key in list(self._coming):
            came = self._core.came(key)
            if came is None:
                continue
            track, tokens = self._ledger[key], self._coming.pop(key)
            track.loading = 0
            self._told[key] = tokens if came else 0
            if not came:
                track.computed -= tokens
                self._refuse(key)
        for part in admission.parts:
            if part.loaded and part.live and self._core.computed(part) < part.stop:
                self._refused.add(part.track.key)
                self._ledger.lose(part)
                self._core.hold(part.track.key, part.track.computed)

    def told(self, admission: Admission) -> dict[str, int]:
        """Return what came since the last step, tokens by key: 0 where a load failed."""
        told, self._told = self._told, {}
        parts = (part for part in admission.parts if part.loaded and part.live)
        return told | {part.track.key: part.loaded for part in parts}

    def coming(self, keys: Iterable[str]) -> tuple[str, ...]:
        """Return which of some sequences wait for their KV."""
        return tuple(key for key in keys if key in self._coming)

    def drop(self, track: Track) -> None:
        """Do without a load that is under way, if there is one."""
        tokens = self._coming.pop(track.key, 0)
        if tokens:
            track.loading = 0
            track.computed -= tokens
            self._told[track.key] = 0
            self._core.cancel(track.key)

    def remove(self, key: str) -> None:
        """Forget a sequence."""
        self._coming.pop(key, None)
        self._told.pop(key, None)
        self._refused.discard(key)

    def _refuse(self, key: str) -> None:
        """Let a sequence begin anew without a load."""
        self._core.cancel(key)
        self._refused.add(key)

    def _wait_for_room(self, admission: Admission) -> None:
        """Wait while vLLM stores blocks that were given up, or loads into those of removed ones."""
        block = self._ledger.block_tokens
        needed = sum(
            rounded(part.stop, block) - rounded(part.start - part.loaded, block)
            for part in admission.parts
        )
        needed += sum(rounded(tokens, block) for tokens in self._starting.values())
        end_s = time.monotonic() + ROOM_S
        while self._core.free_blocks * block < needed:
            if time.monotonic() > end_s:
                raise EngineError(
                    f"vLLM's KV connector has kept the blocks of other sequences for {ROOM_S:g} s"
                )
            self._core.turn()
            time.sleep(0.001)
