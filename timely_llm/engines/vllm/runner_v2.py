"""What this package does within vLLM's Model Runner V2."""

from __future__ import annotations

from typing import Any

import torch
from vllm.sampling_params import SamplingParams
from vllm.v1.worker.gpu.sample.logits_processor import (
    LogitsContext,
    LogitsProcessor,
    LogitsProcRequestState,
)

from timely_llm.engines.vllm.sampling import draw, temperature_and_seed


class SlotDrawProcessor(LogitsProcessor):  # type: ignore[misc] # of a library that is not always there
    """Samples tokens, and excludes all others in vLLM's logits."""

    def __init__(self, vllm_config: Any, req_states: LogitsProcRequestState) -> None:
        self._slots: dict[int, tuple[float, int]] = {}

    def add_request(self, req_idx: int, sampling_params: SamplingParams) -> bool:
        """Record the request of a slot; return whether its tokens are drawn here."""
        self._slots.pop(req_idx, None)
        drawn = temperature_and_seed(sampling_params)
        if drawn is not None:
            self._slots[req_idx] = drawn
        return drawn is not None

    def apply(self, logits: torch.Tensor, ctx: LogitsContext) -> torch.Tensor:
        """Exclude all tokens but the sampled one, in each row with a temperature.

        Args:
            logits: [rows, vocabulary]; changed.
            ctx: slot and position of each row.
        """
        if self._slots.keys() & set(ctx.idx_mapping_np.tolist()):
            slots, positions = ctx.expanded_idx_mapping.tolist(), ctx.pos.tolist()
            draw(
                logits,
                {
                    row: (*self._slots[slot], position + 1)
                    for row, (slot, position) in enumerate(zip(slots, positions, strict=True))
                    if slot in self._slots
                },
            )
        return logits


def prepare(runner: Any) -> None:
    """Prepare a worker's runner for its first step.

    A stage gets the tokens of a step from the last stage. vLLM uses them as many steps later as
    there are stages, since its scheduler leaves a request out for as long. A plan does not: a stage
    here uses them as soon as a step has one of their requests.
    """
    handler = runner.pp_handler
    if handler is None or handler.is_last_rank:
        return
    execute_model = runner.execute_model

    def execute(scheduler_output: Any, *args: Any, **kwargs: Any) -> Any:
        known = runner.req_states.req_id_to_index
        names = scheduler_output.scheduled_cached_reqs.req_ids
        slots = {known[name] for name in names if name in known}
        while any(
            pending is not None and slots.intersection(pending.idx_mapping_np.tolist())
            for pending in list(handler.queue)[1:]
        ):
            runner.update_pp_decode_requests()
        return execute_model(scheduler_output, *args, **kwargs)

    runner.execute_model = execute
