"""A sketch: the short outline of an answer or a plan that another model expands, and its reader."""

from __future__ import annotations

import re
from dataclasses import dataclass

from timely_llm.skills.prose import SentenceChecker

MOST_PARTS = 32
"""Most parts of a sketch."""

MOST_CHARACTERS = 400
"""Most characters of a part."""

TOKENS_A_WORD = 4 / 3
"""Tokens of a word of English, about: a length in words becomes one in tokens."""

MOST_TOKENS = 100_000
"""Longest length that a cloud may expect, tokens."""

_DECORATION = r"[\s*_#>`]*"

_ITEM = re.compile(
    rf"{_DECORATION}(?:(?:step|point|part)\s+)?\d{{1,3}}{_DECORATION}[.):]{_DECORATION}\s"
    r"|\s*[-*+•]\s",
    re.IGNORECASE,
)

_LENGTH = re.compile(
    r"(?:[a-z]+ ){0,3}length(?: of (?:the )?(?:whole |full )?answer)?\W{1,4}"
    r"(?:is |about |approximately |~ ?){0,2}"
    r"(?P<count>\d{1,3},\d{3}|\d{1,6})\s*(?P<unit>words?|tokens?)?\W*",
    re.IGNORECASE,
)

_CONTROL_TOKEN = re.compile(
    r"<\|[^<>|]{0,64}\|>|</?(?:s|bos|eos|pad|unk|start_of_turn|end_of_turn)>|\[/?INST\]|<</?SYS>>",
    re.IGNORECASE,
)
_LEFT_OUT = re.compile(rf"{_CONTROL_TOKEN.pattern}|<\||\|>|\*\*|`", re.IGNORECASE)

_RAW = 4
"""Characters that are read for one of a part: what is left out takes some."""

_JOINERS = "\u200c\u200d"  # between letters of Persian and of Indic scripts


@dataclass(frozen=True)
class Part:
    """One part of a sketch: a sentence of an answer, or a step of a plan.

    Attributes:
        index: number of the part, from 0, without gaps.
        text: its words, on one line.
    """

    index: int
    text: str

    @property
    def words(self) -> int:
        """Words of the text."""
        return len(self.text.split())


@dataclass(frozen=True)
class Sketch:
    """What is known of a sketch.

    Attributes:
        parts: the complete parts, in order.
        expected_tokens: length of the whole answer, as the author of the sketch expects it, tokens;
            0: unknown.
        final: whether no part follows.
    """

    parts: tuple[Part, ...] = ()
    expected_tokens: int = 0
    final: bool = False


class SketchReader:
    """Parts of a streamed sketch, each as soon as it is complete.

    A sketch is a list of one part a line, numbered or with bullets. Text that is no list is read
    sentence by sentence, until a list begins. A line "Length: 120 words" is the expected length of
    the whole answer. Introductions that end with a colon, and lines without a letter or a digit,
    are left out. How the text was cut into
    pieces changes nothing.

    A part is one line. It has no control characters and spells none of the common control tokens
    of models, such as <|im_end|>.

    Args:
        most_parts: further parts are left out.
        most_characters: longer parts end with a word before it.

    Attributes:
        is_hostile: whether the text spelled a control token. No author of a sketch needs one.
    """

    def __init__(
        self, most_parts: int = MOST_PARTS, most_characters: int = MOST_CHARACTERS
    ) -> None:
        self._most_parts = most_parts
        self._most_characters = most_characters
        self._room = _RAW * (most_parts + 2) * most_characters
        self._checker = SentenceChecker(1.0)
        self._text: list[str] = []
        self._prose: bool | None = None  # whether this line is read by sentences; None: not known
        self._list = False  # an item was read already
        self._parts: list[Part] = []
        self._expected_tokens = 0
        self._ended = False
        self.is_hostile = False

    @property
    def sketch(self) -> Sketch:
        """What is known of the sketch."""
        return Sketch(tuple(self._parts), self._expected_tokens, self._ended)

    def feed(self, text: str) -> tuple[Part, ...]:
        """Read some text and return the parts that it completes.

        Args:
            text: any text; what is far beyond the bounds of all parts is not read.
        """
        known = len(self._parts)
        if self._ended:
            return ()
        text = text[: self._room]
        self._room -= len(text)
        for char in text.replace("\r", "\n"):
            self._text.append(char)
            sentence = bool(self._checker.feed(char))
            if char == "\n":
                self._take()
                self._prose = None
            elif sentence:
                if self._prose is None:
                    self._prose = _ITEM.match("".join(self._text)) is None
                if self._prose:
                    self._take()
        return tuple(self._parts[known:])

    def end(self) -> tuple[Part, ...]:
        """End the text and return the part that it completes, if any."""
        known = len(self._parts)
        if not self._ended:
            self._take()
            self._ended = True
        return tuple(self._parts[known:])

    def _take(self) -> None:
        """Take what was read as a part, as a length, or not at all."""
        raw = "".join(self._text)[: _RAW * self._most_characters]
        self._text = []
        self.is_hostile = self.is_hostile or _CONTROL_TOKEN.search(raw) is not None
        item = None if self._prose else _ITEM.match(raw)
        text = clean(raw[item.end() :] if item else raw)
        length = _LENGTH.fullmatch(text)
        if length:
            count = int(length["count"].replace(",", ""))
            words = not (length["unit"] or "words").lower().startswith("token")
            tokens = round(count * TOKENS_A_WORD) if words else count
            self._expected_tokens = self._expected_tokens or min(tokens, MOST_TOKENS)
            return
        self._list = self._list or item is not None
        introduces = text.endswith(":") or " " not in text
        wordless = not any(map(str.isalnum, text))
        if wordless or (item is None and (self._list or introduces)):
            return
        if len(self._parts) < self._most_parts:
            part = Part(len(self._parts), _clipped(text, self._most_characters))
            self._parts.append(part)


def clean(text: str) -> str:
    """Return text of a cloud as one line without control characters, control tokens and markup."""
    line = "".join(c if c.isprintable() or c in _JOINERS else " " for c in text)
    before = ""
    while line != before:  # what surrounds a token may form another one
        before, line = line, _LEFT_OUT.sub("", line)
    return " ".join(line.split())


def _clipped(text: str, most: int) -> str:
    if len(text) <= most:
        return text
    cut = text[: most + 1].rsplit(" ", 1)[0]
    return cut if len(cut) <= most else text[:most]
