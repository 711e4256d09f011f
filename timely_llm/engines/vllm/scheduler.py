"""vLLM's own scheduler, which schedules exactly the step that it is given.

vLLM imports this module by the names of `SCHEDULERS`.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import nullcontext
from typing import Any

from vllm.v1.core.kv_cache_manager import KVCacheBlocks
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.scheduler import Scheduler

from timely_llm.engines.vllm.connectors import Offers

SCHEDULERS = {False: f"{__name__}.PlannedScheduler", True: f"{__name__}.PlannedAsyncScheduler"}
"""Names of the classes, by whether vLLM's asynchronous scheduling is on."""


class PlannedScheduler(Scheduler):  # type: ignore[misc] # of a library that is not always there
    """Schedules the requests of `order`, in its order, each with exactly its tokens.

    Requests that take no part are hidden while vLLM schedules, and so keep their KV. vLLM does not
    decide about evictions: the engine evicts before a step begins, so that vLLM never preempts a
    request.

    Attributes:
        order: request id -> tokens, of the next step.
        scheduled: request id -> tokens, of the last step.
        step_number: number of the last step, from 1 on; workers find it in what vLLM sends them.
        offers: loads of the KV connector; None: there is no connector.
    """

    running: list[Any]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.order: dict[str, int] = {}
        self.scheduled: dict[str, int] = {}
        self.step_number = 0
        self._lent: dict[str, tuple[Any, int]] = {}
        # vLLM then asks `_mamba_block_aligned_split` about every request that it schedules.
        self.need_mamba_block_aligned_split = True
        self._find = self.kv_cache_manager.get_computed_blocks
        self.kv_cache_manager.get_computed_blocks = self._known
        self.offers = Offers(self) if self.connector is not None else None

    def schedule(self, *args: Any, **kwargs: Any) -> Any:
        """Schedule the requests of `order`; see vLLM."""
        resting = {request.request_id: request for request in self.running}
        self.running = [resting.pop(name) for name in self.order if name in resting]
        try:
            with self.offers.only(self.order) if self.offers else nullcontext():
                output = super().schedule(*args, **kwargs)
        finally:
            self.running += resting.values()
        self.scheduled = output.num_scheduled_tokens
        self.step_number += 1
        output.step_number = self.step_number
        return output

    def has_requests(self) -> bool:
        """Return whether there is a step to schedule; if not, vLLM waits for one in flight."""
        return bool(self.order) or (self.offers is not None and self.offers.turning)

    def hold(self, request_id: str, tokens: int) -> Any:
        """Return blocks of a request that outlive it until they are released.

        Args:
            request_id: the request; it has been scheduled.
            tokens: computed tokens of the request, in whole blocks.
        """
        groups = self.kv_cache_manager.get_blocks(request_id).blocks
        held = KVCacheBlocks(tuple(list(group[: tokens // self.block_size]) for group in groups))
        for blocks in held.blocks:
            self.kv_cache_manager.block_pool.touch(blocks)
        return held

    def shorten(self, held: Any, tokens: int) -> Any:
        """Free the held blocks after the first `tokens` tokens; return the others."""
        first = tokens // self.block_size
        self.release(KVCacheBlocks(tuple(list(blocks[first:]) for blocks in held.blocks)))
        return KVCacheBlocks(tuple(list(blocks[:first]) for blocks in held.blocks))

    def release(self, held: Any) -> None:
        """Free held blocks; the last ones are overwritten first."""
        for blocks in held.blocks:
            self.kv_cache_manager.block_pool.free_blocks(reversed(blocks))

    def lend(self, request_id: str, held: Any, tokens: int) -> None:
        """Let a request that is not scheduled yet begin with held blocks."""
        self._lent[request_id] = held, tokens

    def prefix_hit(self, request: Any) -> int:
        """Return the tokens of a request in vLLM's prefix cache, in whole blocks.

        At least one token is left to compute.
        """
        return int(self._find(request)[1])

    def lend_prefix_hit(self, request: Any) -> Any:
        """Let a request that is not scheduled yet begin with its prefix-cache hit.

        Blocks that it was lent before stay its first blocks.

        Returns:
            Its blocks, held until they are released.
        """
        nothing = self.kv_cache_manager.empty_kv_cache_blocks
        lent, known = self._lent.get(request.request_id, (nothing, 0))
        first = known // self.block_size
        found, tokens, _ = self._find(request)
        both = zip(lent.blocks, found.blocks, strict=True)
        held = KVCacheBlocks(tuple([*ours[:first], *others[first:]] for ours, others in both))
        for blocks in held.blocks:
            self.kv_cache_manager.block_pool.touch(blocks)
        self.lend(request.request_id, held, tokens)
        return held

    def forget_cached(self, kept: Iterable[Any]) -> None:
        """Remove all blocks from the prefix cache but the held ones: others may have no KV."""
        pool = self.kv_cache_manager.block_pool
        known = {block.block_id for held in kept for blocks in held.blocks for block in blocks}
        pool.evict_blocks({block.block_id for block in pool.blocks} - known)

    def finish_requests(self, *args: Any, **kwargs: Any) -> Any:
        """Finish requests; see vLLM."""
        finished = super().finish_requests(*args, **kwargs)
        for request in finished:
            self._lent.pop(request.request_id, None)
            if self.offers:
                self.offers.forget(request.request_id)
        return finished

    def _known(self, request: Any, *_: Any, **__: Any) -> tuple[Any, int, int]:
        """Return the blocks that a request begins with: only those that it was lent.

        With a prefix-cache hit, a step would compute fewer tokens than the policy expects. From
        vLLM 0.33 on, another argument limits the hit, for outputs that this package does not use.
        """
        held, tokens = self._lent.pop(
            request.request_id, (self.kv_cache_manager.empty_kv_cache_blocks, 0)
        )
        return held, tokens, 0

    def _mamba_block_aligned_split(self, request: Any, num_new_tokens: int, *_: Any) -> int:
        """Return the tokens of a request that are scheduled."""
        return min(num_new_tokens, self.order[request.request_id])


class PlannedAsyncScheduler(PlannedScheduler, AsyncScheduler):  # type: ignore[misc]
    """The same for vLLM's asynchronous scheduler, which counts pending tokens."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        # Steps that vLLM leaves a request out on Model Runner V2: see `runner_v2.prepare`.
        self.decode_stagger = 0
