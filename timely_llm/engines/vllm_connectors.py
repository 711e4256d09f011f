"""KV that vLLM's connectors bring back, from the host's memory or elsewhere, instead of computing.

A connector stores KV by what it is of. When a sequence whose KV was given up begins anew, it is
asked what it has. What it loads at once is there in the same step; what comes later keeps its
sequence out of the steps until it is there.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from vllm.config import KVTransferConfig
from vllm.distributed.kv_transfer import ensure_kv_transfer_shutdown, has_kv_transfer_group
from vllm.platforms import current_platform

from timely_llm.core.errors import EngineError
from timely_llm.engines.ledger import Ledger
from timely_llm.engines.room import rounded
from timely_llm.engines.track import Admission, Part, Track
from timely_llm.policies.contract import StepPlan

if TYPE_CHECKING:
    from timely_llm.engines.vllm_core import VllmCore

log = logging.getLogger(__name__)

ROOM_S = 5.0
"""How long a step waits for blocks that vLLM still stores or loads, seconds."""
_OF_GPUS = ("OffloadingConnector", "SimpleCPUOffloadConnector")
_QUEUES = ("waiting", "skipped_waiting", "kv_holding_waiting")
"""Where vLLM's scheduler keeps requests that do not run; the second until 0.30, the third since."""


def transfer_config(given: Any) -> Any:
    """Return vLLM's configuration of a connector, None for none.

    Args:
        given: the option `kv_transfer_config`.

    Raises:
        EngineError: it names no connector, or one for half of the way.
    """
    if given is None:
        return None
    if not isinstance(given, Mapping) or not isinstance(given.get("kv_connector"), str):
        raise EngineError(
            'engine_args: kv_transfer_config must be as {"kv_connector": "OffloadingConnector",'
            f' "kv_connector_extra_config": {{"cpu_bytes_to_use": 8e9}}}}, not {given!r}'
        )
    if given.get("kv_role", "kv_both") != "kv_both":
        raise EngineError(
            "engine_args: this engine stores KV and loads it itself: kv_role must be 'kv_both',"
            f" not {given['kv_role']!r}"
        )
    return KVTransferConfig(**{**given, "kv_role": "kv_both"})


def check_connector(config: Any) -> None:
    """Find out whether a configuration's connector can be had; what it cannot load is computed.

    Raises:
        EngineError: it moves KV between a GPU and the host's memory, and there is no GPU, or
            several steps are in flight.
    """
    if config.kv_transfer_config is None:
        return
    if config.max_concurrent_batches > 1:
        raise EngineError(
            "engine_args: a KV connector and several steps in flight (async_scheduling, pipeline"
            " stages) exclude each other"
        )
    config.kv_transfer_config.kv_load_failure_policy = "recompute"
    name = config.kv_transfer_config.kv_connector
    if current_platform.is_cpu() and name in _OF_GPUS:
        raise EngineError(
            f"vLLM's {name} moves KV between a GPU and the host's memory: on a CPU leave"
            " kv_offloading_size out"
        )


@contextmanager
def only_connector() -> Iterator[None]:
    """Start an engine: vLLM has one connector a process, which must not outlive a failed start.

    Raises:
        EngineError: an engine of this process has one.
    """
    if has_kv_transfer_group():
        raise EngineError("another engine of this process has a KV connector: vLLM takes only one")
    try:
        yield
    except Exception:
        ensure_kv_transfer_shutdown()
        raise


class Offers:
    """What vLLM's scheduler hears from its connector: only what was decided before the step.

    Args:
        scheduler: vLLM's, with a connector.

    Raises:
        EngineError: this version of vLLM keeps its requests in another way.
    """

    def __init__(self, scheduler: Any) -> None:
        if not any(hasattr(scheduler, name) for name in _QUEUES[1:]):
            raise EngineError(
                "this version of vLLM is not known well enough for a KV connector: leave"
                " kv_transfer_config and kv_offloading_size out"
            )
        self._scheduler = scheduler
        self._ask = scheduler.connector.get_num_new_matched_tokens
        scheduler.connector.get_num_new_matched_tokens = self._answer
        self._taken: dict[str, tuple[int, bool]] = {}
        self._starting: frozenset[str] = frozenset()
        self.turning = False
        """Whether a step is made that computes nothing."""

    def ask(self, request: Any, known: int) -> tuple[int, bool]:
        """Return how many tokens after the known ones can be loaded, and whether they come later.

        A connector that does not know yet, or breaks down, has none.
        """
        try:
            tokens, later = self._ask(request, known)
        except Exception:
            log.exception("the KV connector could not say what it has")
            return 0, False
        return tokens or 0, bool(tokens and later)

    def take(self, request_id: str, tokens: int, later: bool) -> None:
        """Let a request begin with so many loaded tokens."""
        self._taken[request_id] = tokens, later

    def forget(self, request_id: str) -> None:
        """Take note that a request has ended."""
        self._taken.pop(request_id, None)

    @contextmanager
    def turn(self, starting: frozenset[str]) -> Iterator[None]:
        """Let vLLM make a step that computes nothing, in which some requests begin their load."""
        self._starting, self.turning = starting, True
        try:
            yield
        finally:
            self._starting, self.turning = frozenset(), False

    @contextmanager
    def only(self, members: Mapping[str, int]) -> Iterator[None]:
        """Keep all waiting requests but these, and those that start, out of vLLM's sight."""
        resting: list[tuple[Any, list[Any]]] = []
        for name in _QUEUES:
            queue = getattr(self._scheduler, name, None)
            others = [
                request
                for request in queue or ()
                if request.request_id not in members and request.request_id not in self._starting
            ]
            if queue is not None and others:
                queue.remove_requests(others)
                resting.append((queue, others))
        try:
            yield
        finally:
            for queue, others in resting:
                for request in others:
                    queue.add_request(request)
            for request_id in members:  # never asked about again
                self.forget(request_id)

    def _answer(self, request: Any, _: int) -> tuple[int, bool]:
        return self._taken.get(request.request_id, (0, False))


class Loads:
    """The loads of an engine's sequences, in its books and in vLLM.

    Args:
        core: vLLM, with a connector.
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

    def give_up(self) -> None:
        """Forget the loads that a step which broke down was to begin."""
        for key in self._starting:
            self._core.cancel(key)
        self._starting.clear()

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
