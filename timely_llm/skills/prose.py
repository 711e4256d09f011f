"""Stop checkers for prose: by sentence, by paragraph (Ling et al. 2024, §7.4.2)."""

from __future__ import annotations

import re

from timely_llm.core.errors import PlanError
from timely_llm.core.segment import SkillCall
from timely_llm.skills.stop_checker import Call, Piece

ENDS = frozenset(".!?…。！？")  # noqa: RUF001
ENDS_AT_ONCE = frozenset("。！？")  # noqa: RUF001
CLOSERS = frozenset("\"'”’»)]}」』")  # noqa: RUF001
OPENERS = "\"'“‘«([{*_"  # noqa: RUF001

ABBREVIATIONS = frozenset((
    "mr", "mrs", "ms", "mx", "dr", "prof", "rev", "hon", "gen", "col", "capt", "lt", "sgt", "st",
    "mt", "ft", "jr", "sr", "vs", "etc", "al", "approx", "ca", "cf", "vol", "pp", "fig", "figs",
    "eq", "eqs", "sec", "ch", "inc", "ltd", "corp", "dept", "jan", "feb", "mar", "apr", "jun",
    "jul", "aug", "sep", "sept", "oct", "nov", "dec", "bzw", "usw",
))  # fmt: skip
_LETTERS = re.compile(r"(?:[^\W\d_]{1,2}\.)+[^\W\d_]{1,2}")
_CLOSERS = "".join(CLOSERS)
_WORD = 24


class ProseChecker:
    """Counts words and cuts where `_ends` says so; see `StopChecker`.

    Args:
        words_per_s: how fast the text is read or spoken.
    """

    def __init__(self, words_per_s: float) -> None:
        self._words_per_s = words_per_s
        self._text: list[str] = []
        self._words = 0
        self._in_word = False
        self._cuts = 0
        self.done = False
        self.rest = ""

    @property
    def tail(self) -> str:
        """What was read after the last boundary; see `StopChecker.tail`."""
        return "".join(self._text)

    def feed(self, text: str) -> list[Piece]:
        """Read some text and return the pieces that it completes; see `StopChecker.feed`."""
        pieces = []
        for char in text:
            if self._ends_before(char):
                pieces.append(self._cut())
            self._add(char)
            if self._words and self._ends_with(char):
                pieces.append(self._cut())
        return pieces

    def finish(self) -> tuple[Piece | None, str]:
        """End the text; see `StopChecker.finish`."""
        if self._words:
            return self._cut(), ""
        if not self._cuts:
            raise PlanError("the text is empty")
        return None, self.tail

    def _ends_before(self, char: str) -> bool:
        return False

    def _ends_with(self, char: str) -> bool:
        raise NotImplementedError

    def _add(self, char: str) -> None:
        self._text.append(char)
        space = char.isspace()
        self._words += not space and not self._in_word
        self._in_word = not space

    def _cut(self) -> Piece:
        text, seconds = self.tail, self._words / self._words_per_s
        self._text, self._words, self._in_word = [], 0, False
        self._cuts += 1
        return Piece(text, (), seconds, (Call(SkillCall("", (text,), seconds)),))


class SentenceChecker(ProseChecker):
    """Cuts after each sentence and each line.

    A sentence ends with the white space after `.`, `!`, `?` or `…`, unless the full stop belongs to
    an abbreviation, an initial or the number of a list's item. The white space is needed because
    3.5 is no end and "Why?!" is one. 。！？ need no white space.
    """  # noqa: RUF002

    def __init__(self, words_per_s: float) -> None:
        super().__init__(words_per_s)
        self._word: list[str] = []  # since the last white space, at most _WORD characters
        self._end = ""  # the marks that may end the sentence, without closing quotes

    def _ends_before(self, char: str) -> bool:
        if self._end and self._end[-1] in ENDS_AT_ONCE:
            return not (char.isspace() or char in ENDS or char in CLOSERS)
        return False

    def _ends_with(self, char: str) -> bool:
        if char == "\n":
            return True
        if char.isspace():
            return bool(self._end) and not self._abbreviated()
        return False

    def _add(self, char: str) -> None:
        if not self._in_word:
            self._word, self._end = [], ""
        super()._add(char)
        if char.isspace():
            return
        if char in ENDS:
            self._end += char if len(self._end) < _WORD else ""
        elif char not in CLOSERS or not self._end:
            self._end = ""
        if len(self._word) < _WORD:
            self._word.append(char)

    def _cut(self) -> Piece:
        self._word, self._end = [], ""
        return super()._cut()

    def _abbreviated(self) -> bool:
        """Whether the full stop at the end of the word does not end the sentence."""
        if self._end != ".":
            return False
        word = "".join(self._word).lstrip(OPENERS).rstrip(_CLOSERS)
        if not word.endswith("."):
            return False
        word = word[:-1]
        if word.isdigit():
            return self._words == 1
        if "." in word:
            return _LETTERS.fullmatch(word) is not None
        initial = len(word) == 1 and word.isupper() and word != "I"
        return initial or word.lower() in ABBREVIATIONS


class ParagraphChecker(ProseChecker):
    """Cuts after each blank line."""

    def __init__(self, words_per_s: float) -> None:
        super().__init__(words_per_s)
        self._line_is_blank = True

    def _ends_with(self, char: str) -> bool:
        if char == "\n":
            blank, self._line_is_blank = self._line_is_blank, True
            return blank
        if not char.isspace():
            self._line_is_blank = False
        return False


_LETTER = r"[\p{L}\p{M}\p{N}]"
_PROSE_WORD = rf"{_LETTER}+(?:['’-]{_LETTER}+|[.,:]\p{{N}}+)*[%°]?"  # noqa: RUF001
_GAP = r"(?:[,:]? +| [-–—] |[，、：])"  # noqa: RUF001
_END = r"(?:[.!?…]+|[。！？])"  # noqa: RUF001
_SENTENCE = rf"{_PROSE_WORD}(?:{_GAP}{_PROSE_WORD})*{_END}"
PROSE = rf"{_SENTENCE}(?:(?: +|\n+)?{_SENTENCE})*"
"""A regular expression, in the syntax of the library `regex` and of llguidance."""
PROSE_GRAMMAR = f"start: /{PROSE}/\n"
"""The same in Lark's notation."""
