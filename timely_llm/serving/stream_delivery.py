"""From an answer's tokens to chunks, and to what its listener got."""

from __future__ import annotations

from typing import TYPE_CHECKING

from timely_llm.core.generation import StreamGeneration
from timely_llm.core.stream import StreamChunk

if TYPE_CHECKING:
    from timely_llm.engines.tokenizer_contract import Tokenizer


class StreamDelivery:
    """Watches one answer's tokens and hands out each as it comes.

    Args:
        generation: the generation, which this object keeps up to date.
        tokenizer: the engine's words.
    """

    def __init__(self, generation: StreamGeneration, tokenizer: Tokenizer) -> None:
        self.generation = generation
        self._tokenizer = tokenizer
        self._stream = tokenizer.stream()
        self.complete = False

    def push(self, token_id: int, now: float) -> list[StreamChunk]:
        """Take a token and return what is to be told of it."""
        generation = self.generation
        generation.token_ids.append(token_id)
        generation.tally.generated_tokens += 1
        generation.came(now)
        ends = token_id in self._tokenizer.eos_ids
        text = "" if ends else self._stream.push(token_id)
        generation.pieces.append(text)
        generation.listener.hear(text, now)
        generation.cut = not ends and len(generation.token_ids) >= generation.max_tokens
        self.complete = ends or generation.cut
        index = len(generation.token_ids) - 1
        return [StreamChunk(generation.key, generation.request.agent, index, text, self.complete)]
