"""Choice of the next token on vLLM: sampled as on the embedded engine, within the same grammars.

vLLM itself has one random stream per request: a request that begins again would sample other
tokens, and on a CPU a request with a seed cannot be prefilled in chunks.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from vllm.sampling_params import SamplingParams
from vllm.v1.structured_output.backend_types import StructuredOutputBackend, StructuredOutputGrammar

from timely_llm.engines.contract import Decoding
from timely_llm.engines.grammars import Matcher
from timely_llm.engines.transformers.sampling import SamplingParameters, sample

_TEMPERATURE, _SEED = "timely_llm.temperature", "timely_llm.seed"


def decoding_params(decoding: Decoding) -> dict[str, Any]:
    """Return the `extra_args` of a request, which `temperature_and_seed` reads."""
    if not decoding.temperature:
        return {}
    return {_TEMPERATURE: decoding.temperature, _SEED: decoding.seed}


def temperature_and_seed(params: SamplingParams) -> tuple[float, int] | None:
    """Return the temperature and the seed of a request; None: no temperature."""
    extra = params.extra_args or {}
    return (extra[_TEMPERATURE], extra[_SEED]) if _TEMPERATURE in extra else None


def draw(logits: torch.Tensor, drawn: Mapping[int, tuple[float, int, int]]) -> None:
    """Exclude all tokens but the sampled one, in some rows.

    Args:
        logits: [rows, vocabulary]; changed.
        drawn: row -> temperature, seed, and tokens before the sampled one.
    """
    if drawn:
        rows = list(drawn)
        of_rows = logits[rows]
        parameters = [SamplingParameters(*of) for of in drawn.values()]
        token_ids = sample(parameters, of_rows, of_rows.max(-1).values)
        logits[rows] = -torch.inf
        logits[rows, token_ids] = 0.0


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
