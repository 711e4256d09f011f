"""Words, numbers, texts and marks of the plan language, one character at a time."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass
from typing import Literal

from timely_llm.core.echo import quoted
from timely_llm.core.errors import PlanError
from timely_llm.core.segment import Value

MAX_NAME = 64
MAX_NUMBER = 16

_SINGLE = frozenset("(){},;?&|")
_DOUBLE = {"-": ">", "=": "=", "!": "=", "<": "=", ">": "="}
_ALONE = frozenset("<>")


@dataclass(frozen=True)
class Token:
    """One token: a word, number, text or mark. A literal has its value."""

    kind: Literal["word", "number", "text", "mark"]
    text: str
    value: Value | None = None


class Lexer:
    """Turns characters into tokens; each character is looked at once or twice.

    Args:
        max_text: characters of the longest quoted text.
    """

    def __init__(self, max_text: int) -> None:
        self._max_text = max_text
        self._open = ""  # what is being read: "word", "number", "text", "escape", "mark" or nothing
        self._read: list[str] = []
        self._quote = ""

    @property
    def inside_text(self) -> bool:
        """Whether a quoted text is open."""
        return self._open in ("text", "escape")

    def push(self, char: str) -> list[Token]:
        """Return the tokens that `char` completes.

        Raises:
            PlanError: the character cannot be part of a plan.
        """
        if self.inside_text:
            return self._in_text(char)
        tokens = []
        if self._open:
            if self._continues(char):
                return self._extend(char)
            tokens += self._complete()
        self._begin(char, tokens)
        return tokens

    def flush(self) -> list[Token]:
        """Return the token that the end of the text completes."""
        return self._complete() if self._open in ("word", "number", "mark") else []

    def _continues(self, char: str) -> bool:
        if self._open == "word":
            return char == "_" or (char.isascii() and char.isalnum())
        if self._open == "number":
            return char == "." or (char.isascii() and char.isdigit())
        first = self._read[0]
        return char == _DOUBLE[first] or (first == "-" and char.isascii() and char.isdigit())

    def _extend(self, char: str) -> list[Token]:
        self._read.append(char)
        if self._open == "mark":
            if char.isdigit():
                self._open = "number"
                return []
            return self._complete()
        limit, what = (MAX_NAME, "name") if self._open == "word" else (MAX_NUMBER, "number")
        if len(self._read) > limit:
            raise PlanError(f"a {what} is longer than {limit} characters")
        return []

    def _begin(self, char: str, tokens: list[Token]) -> None:
        if char in _SINGLE:
            tokens.append(Token("mark", char))
        elif char in "'\"":
            self._open, self._quote = "text", char
        elif char in _DOUBLE:
            self._open, self._read = "mark", [char]
        elif char == "_" or (char.isascii() and char.isalpha()):
            self._open, self._read = "word", [char]
        elif char.isascii() and char.isdigit():
            self._open, self._read = "number", [char]
        elif not char.isspace():
            raise PlanError(f"{char!r} cannot be part of a plan")

    def _in_text(self, char: str) -> list[Token]:
        if self._open == "escape":
            self._open = "text"
        elif char == "\\":
            self._open = "escape"
            return []
        elif char == self._quote:
            value = "".join(self._read)
            self._open, self._read = "", []
            return [Token("text", value, value)]
        if unicodedata.category(char) == "Cc":
            raise PlanError(f"a text must not contain the control character {char!r}")
        self._read.append(char)
        if len(self._read) > self._max_text:
            raise PlanError(f"a text is longer than {self._max_text} characters")
        return []

    def _complete(self) -> list[Token]:
        text, kind = "".join(self._read), self._open
        self._open, self._read = "", []
        if kind == "word":
            literals = {"True": True, "False": False, "true": True, "false": False}
            return [Token("word", text, literals.get(text))]
        if kind == "number":
            try:
                number = float(text) if "." in text else int(text)
            except ValueError:
                raise PlanError(f"{quoted(text)} is not a number") from None
            return [Token("number", text, number)]
        if len(text) == 1 and text not in _ALONE:
            raise PlanError(f"{text!r} must be followed by {_DOUBLE[text]!r}")
        return [Token("mark", text)]
