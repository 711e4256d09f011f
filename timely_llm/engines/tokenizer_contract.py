"""What the serving loop asks of an engine's tokenizer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

Message = Mapping[str, str]
"""One chat message: {"role": "system" | "user" | "assistant", "content": text}."""


class TextStream(Protocol):
    """Turns token ids into text as they come."""

    def push(self, token_id: int) -> str:
        """Return the text that `token_id` completes; empty while a character is incomplete."""
        ...


class Tokenizer(Protocol):
    """The engine's words."""

    eos_ids: frozenset[int]

    def encode_chat(self, messages: Sequence[Message]) -> list[int]:
        """Return the prompt's token ids, generation prompt included, by the model's template.

        Raises:
            RequestError: the template does not take the messages.
        """
        ...

    def encode(self, text: str) -> list[int]:
        """Return the token ids of bare text, nothing added; none is a control token."""
        ...

    def control_text(self, text: str) -> str | None:
        """Return the first control token that a text spells, or None.

        In a chat message such a text would be more than words: it could end a turn.
        """
        ...

    def stream(self) -> TextStream:
        """Return a new decoder for one generation."""
        ...
