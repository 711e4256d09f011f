"""Words of an engine without a model."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache

from timely_llm.engines.tokenizer_contract import Message

_PIECES = re.compile(r"[A-Za-z_]{1,4}|[0-9]{1,3}|\s{1,4}|.", re.DOTALL)
_EOS = 0
_LEAD = b"\1"  # so that a piece that begins with zeros is another number than one that does not


@lru_cache(maxsize=65_536)
def _number(piece: str) -> int:
    return int.from_bytes(_LEAD + piece.encode("utf-8", "surrogatepass"))


@lru_cache(maxsize=65_536)
def _text(token_id: int) -> str:
    """Return the text of a number; that of the end is empty."""
    size = (token_id.bit_length() + 7) // 8
    return token_id.to_bytes(size)[len(_LEAD) :].decode("utf-8", "surrogatepass")


class ScriptTokenizer:
    """Cuts text into pieces of one to four characters, each of which is its own number.

    Text and token ids stand for each other exactly, whatever the text is, and nothing is kept of
    texts: a server that reads new words for ever does not grow.
    """

    def __init__(self) -> None:
        self.eos_ids = frozenset({_EOS})

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
        return list(map(_number, pieces))

    def control_text(self, text: str) -> str | None:
        """Return None: no text stands for the token that ends an answer."""
        return None

    def decode(self, token_ids: Sequence[int]) -> str:
        """Return the text of token ids."""
        return "".join(map(_text, token_ids))

    def stream(self) -> ScriptStream:
        """Return a new decoder for one generation."""
        return ScriptStream(self)


class ScriptStream:
    """Turns token ids into text one by one."""

    def __init__(self, tokenizer: ScriptTokenizer) -> None:
        self._tokenizer = tokenizer

    def push(self, token_id: int) -> str:
        """Return the text of a token."""
        return self._tokenizer.decode([token_id])
