"""Choice of the next token on vLLM: sampled as on the embedded engine, within the same grammars.

vLLM itself has one random stream per request: a request that begins again would sample other
tokens, and on a CPU a request with a seed cannot be prefilled in chunks.
"""

from __future__ import annotations

from typing import Any

import torch
from vllm.sampling_params import SamplingParams
from vllm.v1.sample.logits_processor import BatchUpdate, LogitsProcessor
from vllm.v1.sample.logits_processor.builtin import process_dict_updates
from vllm.v1.structured_output.backend_types import StructuredOutputBackend, StructuredOutputGrammar

from timely_llm.engines.contract import Decoding
from timely_llm.engines.grammars import Matcher
from timely_llm.engines.transformers.sampling import SamplingParameters, sample

LOGITS_PROCESSOR = f"{__name__}:DrawProcessor"
WORKER_EXTENSION = f"{__name__}.DrawExtension"
_TEMPERATURE, _SEED = "timely_llm.temperature", "timely_llm.seed"


def decoding_params(decoding: Decoding) -> dict[str, Any]:
    """Return the `extra_args` of a request, which `DrawProcessor` reads."""
    if not decoding.temperature:
        return {}
    return {_TEMPERATURE: decoding.temperature, _SEED: decoding.seed}


class DrawProcessor(LogitsProcessor):  # type: ignore[misc] # of a library that is not always there
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
        if self._rows:
            rows = list(self._rows)
            draws = [
                SamplingParameters(temperature, seed, prompt + len(said))
                for temperature, seed, prompt, said in self._rows.values()
            ]
            of_rows = logits[rows]
            token_ids = sample(draws, of_rows, of_rows.max(-1).values)
            logits[rows] = -torch.inf
            logits[rows, token_ids] = 0.0
        return logits


class DrawExtension:
    """Methods for vLLM's workers: vLLM takes no processor together with speculative decoding.

    `DrawProcessor` does not know speculative tokens; rows with a temperature have none.
    """

    model_runner: Any

    def prepare_stage(self) -> None:
        """Allocate the input that a pipeline stage gets from the stage before it.

        On a CPU vLLM does so only if it compiles the model.
        """
        if self.model_runner.intermediate_tensors is None:
            self.model_runner.profile_run()

    def free_weights(self) -> None:
        """Free the model's weights.

        What vLLM compiled for a GPU refers to them until the process ends.
        """
        model = self.model_runner.get_model()
        for weights in model.parameters():
            storage = weights.untyped_storage()
            storage.resize_(0)

    def draw_by_seed(self) -> None:
        """Add a `DrawProcessor` to the worker."""
        runner = self.model_runner
        processor = DrawProcessor(runner.vllm_config, runner.device, False)
        runner.input_batch.logitsprocs.non_argmax_invariant.append(processor)
        runner.input_batch.logitsprocs_need_output_token_ids = True


class SharedGrammar(StructuredOutputGrammar):  # type: ignore[misc]
    """The state of a request in its grammar, for vLLM; the matcher outlives the request."""

    def __init__(self, matcher: Matcher) -> None:
        self._matcher = matcher

    def accept_tokens(self, request_id: str, tokens: list[int]) -> bool:
        """Advance by tokens."""
        for token_id in tokens:
            self._matcher.take(token_id)
        return True

    def fill_bitmask(self, bitmask: torch.Tensor, batch_index: int) -> None:
        """Write the allowed tokens."""
        allowed = torch.from_numpy(self._matcher.allowed().copy())
        bitmask[batch_index] = allowed[: bitmask.shape[1]]

    def is_terminated(self) -> bool:
        """Return that it goes on: after the end, only an end-of-text token is allowed."""
        return False

    def validate_tokens(self, tokens: list[int]) -> list[int]:
        """Refuse speculative tokens: the grammar cannot go back."""
        return []

    def rollback(self, num_tokens: int) -> None:
        """Go back; never called, since no speculative token is valid."""
        raise NotImplementedError

    def reset(self) -> None:
        """Begin again; never called."""
        raise NotImplementedError


class SharedGrammars(StructuredOutputBackend):  # type: ignore[misc]
    """Masks of `SharedGrammar` for vLLM; grammars are compiled elsewhere."""

    def compile_grammar(self, *args: Any, **kwargs: Any) -> StructuredOutputGrammar:
        """Compile nothing; never called."""
        raise NotImplementedError

    def allocate_token_bitmask(self, max_num_seqs: int) -> torch.Tensor:
        """Return masks that allow everything, [rows, words of 32 tokens]."""
        return torch.full((max_num_seqs, -(-self.vocab_size // 32)), -1, dtype=torch.int32)

    def destroy(self) -> None:
        """Free nothing."""


def _drawn(
    params: SamplingParams, prompt: list[int] | None, said: list[int]
) -> tuple[float, int, int, list[int]] | None:
    """Return temperature, seed, prompt length and answer of a request; None: no temperature."""
    extra = params.extra_args or {}
    if _TEMPERATURE not in extra:
        return None
    return extra[_TEMPERATURE], extra[_SEED], len(prompt or ()), said
