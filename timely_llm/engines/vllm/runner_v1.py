"""What this package does within vLLM's Model Runner V1, which vLLM has deprecated."""

from __future__ import annotations

from typing import Any

import torch
from vllm.platforms import current_platform
from vllm.sampling_params import SamplingParams
from vllm.v1.sample.logits_processor import BatchUpdate, LogitsProcessor
from vllm.v1.sample.logits_processor.builtin import process_dict_updates

from timely_llm.engines.vllm.sampling import draw, temperature_and_seed


class RowDrawProcessor(LogitsProcessor):  # type: ignore[misc] # of a library that is not always there
    """Samples tokens, and excludes all others in vLLM's logits."""

    def __init__(self, vllm_config: Any, device: torch.device, is_pin_memory: bool) -> None:
        self._rows: dict[int, tuple[float, int, int, list[int]]] = {}

    def is_argmax_invariant(self) -> bool:
        """Return that the most likely token can change."""
        return False

    def update_state(self, batch_update: BatchUpdate | None) -> None:
        """Update which request is in which row."""
        process_dict_updates(self._rows, batch_update, _drawn)

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        """Exclude all tokens but the sampled one, in each row with a temperature.

        Args:
            logits: [rows, vocabulary]; changed.
        """
        draw(
            logits,
            {
                row: (temperature, seed, prompt + len(said))
                for row, (temperature, seed, prompt, said) in self._rows.items()
            },
        )
        return logits


def prepare(runner: Any) -> None:
    """Prepare a worker's runner for its first step."""
    config = runner.vllm_config
    if config.speculative_config is not None:
        # `RowDrawProcessor` does not know speculative tokens; rows with a temperature have none.
        processor = RowDrawProcessor(config, runner.device, False)
        runner.input_batch.logitsprocs.non_argmax_invariant.append(processor)
        runner.input_batch.logitsprocs_need_output_token_ids = True
    stages = config.parallel_config.pipeline_parallel_size
    if stages > 1 and current_platform.is_cpu() and runner.intermediate_tensors is None:
        # The input of a stage. On a CPU vLLM allocates it only if it compiles the model.
        runner.profile_run()


def _drawn(
    params: SamplingParams, prompt: list[int] | None, said: list[int]
) -> tuple[float, int, int, list[int]] | None:
    """Return temperature, seed, prompt length and answer of a request; None: no temperature."""
    drawn = temperature_and_seed(params)
    return None if drawn is None else (*drawn, len(prompt or ()), said)
