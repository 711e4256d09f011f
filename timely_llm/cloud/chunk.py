"""A chunk of a streamed chat completion, as OpenAI-compatible servers send it."""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

Count = Annotated[int, Field(ge=0, le=2**31 - 1)]
_NO_TEXT = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True)  # what is not read may be anything


class _Delta(_Model):
    content: str | None = None


class _Choice(_Model):
    index: Count = 0
    delta: _Delta | None = None
    finish_reason: str | None = None


class Usage(_Model):
    """Tokens of a question and of its answer, as the cloud counts them."""

    prompt_tokens: Count = 0
    completion_tokens: Count = 0


class Chunk(_Model):
    """The next piece of an answer: words, the reason of its end, a count, or an error."""

    choices: tuple[_Choice, ...] = ()
    usage: Usage | None = None
    error: Any = None

    @property
    def text(self) -> str:
        """Its words, without control characters other than tabs and line ends."""
        words = (c.delta.content or "" for c in self.choices if c.index == 0 and c.delta)
        return _NO_TEXT.sub("", "".join(words))

    @property
    def finish_reason(self) -> str:
        """Why the answer has ended; empty: it has not."""
        return next((c.finish_reason for c in self.choices if c.finish_reason), "")


def read_chunk(data: str) -> Chunk | None:
    """Return the chunk in the data of an event; None: it is none."""
    try:
        return Chunk.model_validate_json(data)
    except ValidationError:
        return None


def error_words(error: object) -> str:
    """Return the words of an error object; empty: it has none.

    Args:
        error: an object with a message, as OpenAI has it, a text, or the document around one.
    """
    for _ in range(3):
        if not isinstance(error, dict):
            break
        error = next((error[key] for key in ("error", "message", "detail") if key in error), "")
    return error if isinstance(error, str) else ""
