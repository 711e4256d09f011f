"""MiniSpec-style plans, read character by character.

    statement  = call ";" | "?" condition "{" statements "}" | number "{" statements "}"
               | "->" literal ";"
    condition  = term { ("&" | "|") term },  "&" before "|"
    term       = call [ ("==" | "!=" | "<" | ">" | "<=" | ">=") literal ]
    call       = skill "(" [ literal { "," literal } ] ")"

What models really write is read too: "->" between condition and block, no ";" before "}" or at the
end, stray ";". A piece ends with each call and return statement, with the "{" after a whole
condition, and with the "}" of a loop.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NoReturn

from timely_llm.core.errors import PlanError
from timely_llm.core.segment import Value
from timely_llm.core.text import echoed, listed, quoted
from timely_llm.skills.choices import SHOWN
from timely_llm.skills.execution_time import ExecutionTimes
from timely_llm.skills.minispec.builder import PlanBuilder
from timely_llm.skills.skill_set import SkillSet
from timely_llm.skills.stop_checker import Piece, StopChecker, Term

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
            raise PlanError(f"{char!r} cannot be part of a plan outside of quotes")

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


MAX_COUNT = 1000
COMPARISONS = frozenset(("==", "!=", "<", ">", "<=", ">="))


class MiniSpecChecker:
    """A stop checker for one plan; see `StopChecker`.

    Args:
        skill_set: the skills that a plan may use, and the bounds of their arguments.
        times: predicts how long calls take; by default as the skill set says.
    """

    def __init__(self, skill_set: SkillSet, times: ExecutionTimes | None = None) -> None:
        self._skill_set = skill_set
        self._lexer = Lexer(max_text=skill_set.longest_text)
        self._built = PlanBuilder(times or ExecutionTimes(skill_set))
        self._text: list[str] = []  # since the last cut
        self._position = 0
        self._error: PlanError | None = None
        self._expect: Callable[[Token], None] = self._statement
        self._after_call: Callable[[Token], None] = self._end_of_call
        self._name = ""
        self._arguments: list[int | float | str] = []
        self._alternatives: list[list[Term]] = []
        self._comparison = "=="
        self._value: Value = True
        self.done = False
        self.rest = ""

    @property
    def tail(self) -> str:
        """What was read after the last boundary; see `StopChecker.tail`."""
        return "".join(self._text)

    def feed(self, text: str) -> list[Piece]:
        """Read some text and return the pieces that it completes; see `StopChecker.feed`."""
        if self._error is not None:
            raise self._error
        self.rest = ""
        built, cuts = self._built, self._built.cuts
        try:
            for place, char in enumerate(text):
                if self.done:
                    break
                if built.cuts > cuts and built.blocked:
                    self.rest = text[place:] if text[place:].strip() else ""
                    break
                self._position += 1
                self._text.append(char)
                self._read(self._lexer.push, char)
        except PlanError as error:
            # What was complete before the fault is delivered, however the text was split.
            self._error = error
        if built.cuts > cuts:
            return built.take()
        if self._error is not None:
            raise self._error
        return []

    def finish(self) -> tuple[Piece | None, str]:
        """End the text; see `StopChecker.finish`."""
        if self._error is not None:
            raise self._error
        if self.done:
            return None, ""
        if self._lexer.inside_text:
            raise PlanError("the plan ends inside a quoted text")
        self._read(lambda _: self._lexer.flush(), "")
        if self._expect in (self._end_of_call, self._end_of_return):
            self._end_statement()
            self._cut()
        if self._expect != self._statement:
            raise PlanError("the plan ends in the middle of a statement")
        if self._built.open_blocks:
            raise PlanError(
                f"the plan ends with {self._built.open_blocks} open blocks: '}}' missing"
            )
        if not self._built.cuts:
            raise PlanError("the plan is empty")
        pieces = self._built.take()
        return (pieces[0] if pieces else None), self.tail

    def _read(self, lex: Callable[[str], list[Token]], char: str) -> None:
        try:
            for token in lex(char):
                self._expect(token)
        except PlanError as error:
            raise PlanError(f"character {self._position} of the plan: {error}") from None

    # What may come next: one method for each state.

    def _statement(self, token: Token) -> None:
        if token.kind == "word":
            self._begin_call(token, self._end_of_call)
        elif token.text == "?" and token.kind == "mark":
            self._alternatives = [[]]
            self._expect = self._condition
        elif token.kind == "number":
            self._begin_loop(token)
        elif token.text == "->" and token.kind == "mark":
            self._expect = self._returned
        elif token.text == "}" and token.kind == "mark":
            if self._built.close_block():
                self._cut()
        elif token.text != ";" or token.kind != "mark":
            _unexpected(token, "a statement")

    def _call_open(self, token: Token) -> None:
        _take(token, "(")
        self._expect = self._first_argument

    def _first_argument(self, token: Token) -> None:
        if token.kind == "mark" and token.text == ")":
            self._end_call()
        else:
            self._argument(token)

    def _argument(self, token: Token) -> None:
        if token.kind == "word" and token.value is None:
            raise PlanError(self._bare_word(token.text))
        self._arguments.append(_literal(token, "an argument"))
        self._expect = self._argument_end

    def _argument_end(self, token: Token) -> None:
        if token.kind == "mark" and token.text == ")":
            self._end_call()
        else:
            _take(token, ",")
            self._expect = self._argument

    def _end_of_call(self, token: Token) -> None:
        self._end_of_statement(token)

    def _returned(self, token: Token) -> None:
        self._value = _literal(token, "True, False, a number or a text")
        self._expect = self._end_of_return

    def _end_of_return(self, token: Token) -> None:
        self._end_of_statement(token)

    def _condition(self, token: Token) -> None:
        if token.kind != "word" or token.value is not None:
            _unexpected(token, "a skill")
        self._begin_call(token, self._after_term)

    def _after_term(self, token: Token) -> None:
        if token.kind == "mark" and token.text in COMPARISONS:
            self._comparison = token.text
            self._expect = self._compared
        else:
            self._after_comparison(token)

    def _compared(self, token: Token) -> None:
        call = self._alternatives[-1][-1].call
        literal = _literal(token, "True, False, a number or a text")
        self._alternatives[-1][-1] = Term(call, self._comparison, literal)
        self._expect = self._after_comparison

    def _after_comparison(self, token: Token) -> None:
        if token.kind == "mark" and token.text == "->":
            self._expect = self._block_open
        elif token.kind == "mark" and token.text in "&|":
            if token.text == "|":
                self._alternatives.append([])
            self._expect = self._condition
        else:
            self._block_open(token)

    def _block_open(self, token: Token) -> None:
        _take(token, "{")
        self._built.condition(self._alternatives)
        self._cut()
        self._expect = self._statement

    def _loop_open(self, token: Token) -> None:
        _take(token, "{")
        self._built.loop(int(self._value))
        self._expect = self._statement

    # What is done at each end.

    def _begin_call(self, token: Token, after: Callable[[Token], None]) -> None:
        if token.text not in self._skill_set.skills:
            known = listed(list(self._skill_set.skills))
            raise PlanError(
                f"unknown skill {quoted(token.text)}: {self._skill_set.name} has {known}"
            )
        self._name, self._arguments = token.text, []
        self._after_call = after
        self._expect = self._call_open

    def _end_call(self) -> None:
        skill = self._skill_set.skills[self._name]
        condition = self._after_call == self._after_term
        self._call = self._built.named(self._name, skill, self._arguments, condition)
        if condition:
            self._alternatives[-1].append(Term(self._call))
        self._expect = self._after_call

    def _bare_word(self, word: str) -> str:
        """Return what is wrong with a word that stands for an argument."""
        place, arguments = len(self._arguments), self._skill_set.skills[self._name].arguments
        if place >= len(arguments):
            return f"{self._name} takes {len(arguments)} arguments, not more"
        argument = arguments[place]
        if argument.type != "text":
            return f"{self._name}: {argument.name} must be a number, not the word {quoted(word)}"
        if argument.problem(word) is None:
            return f"{self._name}: {argument.name} must be a text in quotes: quote it, '{word}'"
        allowed = f"{argument.allowed(SHOWN)}, " if argument.choices else "a text "
        return f"{self._name}: {argument.name} must be {allowed}in quotes, not {echoed(word)}"

    def _begin_loop(self, token: Token) -> None:
        if not isinstance(token.value, int) or not 1 <= token.value <= MAX_COUNT:
            raise PlanError(
                f"a loop repeats 1 to {MAX_COUNT} times, a whole number, not {token.text}"
            )
        self._value = token.value
        self._expect = self._loop_open

    def _end_of_statement(self, token: Token) -> None:
        if token.kind != "mark" or token.text not in (";", "}"):
            _unexpected(token, "';'")
        self._end_statement()
        if token.text == "}":
            self._built.close_block()
        self._cut()

    def _cut(self) -> None:
        self._built.cut(self.tail)
        self._text.clear()

    def _end_statement(self) -> None:
        if self._expect == self._end_of_return:
            self.done = self._built.returned(self._value)
        else:
            self._built.call(self._call)
        self._expect = self._statement


def check_plan(skill_set: SkillSet, text: str) -> tuple[Piece, ...]:
    """Return the pieces of a whole plan.

    Raises:
        PlanError: it is no plan, or breaks a skill's bounds.
    """
    checker = MiniSpecChecker(skill_set)
    pieces = read_on(checker, text)
    last, _ = checker.finish()
    return (*pieces, last) if last else tuple(pieces)


def read_on(checker: StopChecker, text: str) -> list[Piece]:
    """Return the pieces that `text` completes, also those after blocking calls.

    For text with calls that have returned: a robot's segments, a whole plan.
    """
    pieces = checker.feed(text)
    while checker.rest:
        pieces += checker.feed(checker.rest)
    return pieces


def _literal(token: Token, expected: str) -> Value:
    if token.value is None:
        hint = f": quote it, as '{token.text}'" if token.kind == "word" else ""
        raise PlanError(f"expected {expected}, not {quoted(token.text)}{hint}")
    return token.value


def _take(token: Token, mark: str) -> None:
    if token.kind != "mark" or token.text != mark:
        _unexpected(token, f"{mark!r}")


def _unexpected(token: Token, expected: str) -> NoReturn:
    raise PlanError(f"expected {expected}, not {quoted(token.text)}")
