"""Words of an engine without a model."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from timely_llm.engines.tokenizer_contract import Message

_PIECES = re.compile(r"[A-Za-z_]{1,4}|[0-9]{1,3}|\s{1,4}|.", re.DOTALL)
_EOS = 0


class ScriptTokenizer:
    """Cuts text into pieces of one to four characters and numbers them as it meets them.

    Text and token ids of one tokenizer stand for each other exactly, whatever the text is.
    """

    def __init__(self) -> None:
        self.eos_ids = frozenset({_EOS})
        self._pieces = [""]
        self._ids: dict[str, int] = {}

    @property
    def eos_id(self) -> int:
        """The token that ends an answer."""
        return _EOS

    def encode_chat(self, messages: Sequence[Message]) -> list[int]:
        """Return the token ids of the messages, each under a line that names its role."""
        text = "".join(f"<{m['role']}>\n{m['content']}\n" for m in messages)
        return self.encode(text + "<assistant>\n")

    def encode(self, text: str) -> list[int]:
        """Return the token ids of a text."""
        return self.ids(_PIECES.findall(text))

    def ids(self, pieces: Iterable[str]) -> list[int]:
        """Return the token ids of texts that are one token each."""
        return [self._id(piece) for piece in pieces]

    def control_text(self, text: str) -> str | None:
        """Return None: no text stands for the token that ends an answer."""
        return None

    def decode(self, token_ids: Sequence[int]) -> str:
        """Return the text of token ids."""
        return "".join(self._pieces[token_id] for token_id in token_ids)

    def stream(self) -> ScriptStream:
        """Return a new decoder for one generation."""
        return ScriptStream(self)

    def _id(self, piece: str) -> int:
        token_id = self._ids.get(piece)
        if token_id is None:
            token_id = self._ids[piece] = len(self._pieces)
            self._pieces.append(piece)
        return token_id


class ScriptStream:
    """Turns token ids into text one by one."""

    def __init__(self, tokenizer: ScriptTokenizer) -> None:
        self._tokenizer = tokenizer

    def push(self, token_id: int) -> str:
        """Return the text of a token."""
        return self._tokenizer.decode([token_id])
