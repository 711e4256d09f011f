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

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NoReturn

from timely_llm.core.errors import PlanError
from timely_llm.core.segment import SkillCall, Value
from timely_llm.skills.lexer import Lexer, Token
from timely_llm.skills.skill_set import Skill, SkillSet
from timely_llm.skills.stop_checker import BlockEnd, Call, If, Op, Piece, Repeat, Return, Term

MAX_DEPTH = 16
MAX_COUNT = 1000
MAX_REPETITIONS = 10_000
COMPARISONS = frozenset(("==", "!=", "<", ">", "<=", ">="))


@dataclass
class _Block:
    """An open block: how often its body runs (0 for a condition), and the body's seconds."""

    count: int = 0
    predicted_s: float = 0.0


@dataclass
class _Draft:
    """The piece being read."""

    text: list[str] = field(default_factory=list)
    calls: list[SkillCall] = field(default_factory=list)
    predicted_s: float = 0.0
    ops: list[Op] = field(default_factory=list)


class MiniSpecChecker:
    """A stop checker for one plan; see `StopChecker`.

    Args:
        skill_set: the skills that a plan may use, and the bounds of their arguments.
    """

    def __init__(self, skill_set: SkillSet) -> None:
        self._skill_set = skill_set
        self._lexer = Lexer()
        self._position = 0
        self._draft = _Draft()
        self._pieces: list[Piece] = []
        self._count = 0
        self._blocks = [_Block(count=1)]
        self._expect: Callable[[Token], None] = self._statement
        self._after_call: Callable[[Token], None] = self._end_of_call
        self._name = ""
        self._arguments: list[int | float | str] = []
        self._alternatives: list[list[Term]] = []
        self._comparison = "=="
        self._value: Value = True
        self.done = False

    def feed(self, text: str) -> list[Piece]:
        """Read some text and return the pieces that it completes; see `StopChecker.feed`."""
        for char in text:
            if self.done:
                break
            self._position += 1
            self._draft.text.append(char)
            self._read(self._lexer.push, char)
        return self._taken()

    def finish(self) -> tuple[Piece | None, str]:
        """End the text; see `StopChecker.finish`."""
        if self.done:
            return None, ""
        inside = self._lexer.inside
        if inside == "text":
            raise PlanError("the plan ends inside a quoted text")
        self._read(lambda _: self._lexer.flush(), "")
        if self._expect in (self._end_of_call, self._end_of_return):
            self._end_statement()
            self._cut()
        if self._expect != self._statement:
            raise PlanError("the plan ends in the middle of a statement")
        if len(self._blocks) > 1:
            raise PlanError(f"the plan ends with {len(self._blocks) - 1} open blocks: '}}' missing")
        if not self._count:
            raise PlanError("the plan is empty")
        pieces = self._taken()
        return (pieces[0] if pieces else None), "".join(self._draft.text)

    def _taken(self) -> list[Piece]:
        pieces, self._pieces = self._pieces, []
        return pieces

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
            if self._close_block():
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
        self._draft.ops.append(If(tuple(tuple(terms) for terms in self._alternatives)))
        # Only the first call is sure to be made: the lower bound.
        self._lengthen(self._alternatives[0][0].call.predicted_s)
        self._open_block(0)
        self._cut()

    def _loop_open(self, token: Token) -> None:
        _take(token, "{")
        count = int(self._value)
        self._draft.ops.append(Repeat(count))
        self._open_block(count)

    # What is done at each end.

    def _begin_call(self, token: Token, after: Callable[[Token], None]) -> None:
        if token.text not in self._skill_set.skills:
            known = ", ".join(self._skill_set.skills)
            raise PlanError(f"unknown skill {token.text!r}: {self._skill_set.name} has {known}")
        self._name, self._arguments = token.text, []
        self._after_call = after
        self._expect = self._call_open

    def _end_call(self) -> None:
        skill = self._skill_set.skills[self._name]
        _check_arguments(self._name, skill, self._arguments)
        arguments = tuple(self._arguments)
        seconds = skill.duration.predict_s(arguments)
        call = SkillCall(self._name, arguments, seconds, skill.blocking)
        self._draft.calls.append(call)
        if self._after_call == self._after_term:
            self._alternatives[-1].append(Term(call))
        self._expect = self._after_call

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
            self._close_block()
        self._cut()

    def _end_statement(self) -> None:
        if self._expect == self._end_of_return:
            self._draft.ops.append(Return(self._value))
            self.done = len(self._blocks) == 1
        else:
            call = self._draft.calls[-1]
            self._draft.ops.append(Call(call))
            self._lengthen(call.predicted_s)
        self._expect = self._statement

    def _open_block(self, count: int) -> None:
        self._blocks.append(_Block(count))
        if len(self._blocks) > MAX_DEPTH + 1:
            raise PlanError(f"blocks are nested deeper than {MAX_DEPTH}")
        repetitions = 1
        for block in self._blocks:
            repetitions *= block.count or 1
        if repetitions > MAX_REPETITIONS:
            raise PlanError(f"loops repeat a statement more than {MAX_REPETITIONS} times")
        self._expect = self._statement

    def _close_block(self) -> bool:
        """Close the innermost block; return whether it is a loop."""
        if len(self._blocks) == 1:
            raise PlanError("'}' without a block to close")
        block = self._blocks.pop()
        self._draft.ops.append(BlockEnd())
        self._blocks[-1].predicted_s += block.predicted_s
        if block.count:
            self._lengthen((block.count - 1) * block.predicted_s)
        self._expect = self._statement
        return block.count > 0

    def _lengthen(self, seconds: float) -> None:
        self._draft.predicted_s += seconds
        self._blocks[-1].predicted_s += seconds

    def _cut(self) -> None:
        draft, self._draft = self._draft, _Draft()
        self._count += 1
        self._pieces.append(
            Piece("".join(draft.text), tuple(draft.calls), draft.predicted_s, tuple(draft.ops))
        )


def check_plan(skill_set: SkillSet, text: str) -> tuple[Piece, ...]:
    """Return the pieces of a whole plan.

    Raises:
        PlanError: it is no plan, or breaks a skill's bounds.
    """
    checker = MiniSpecChecker(skill_set)
    pieces = checker.feed(text)
    last, _ = checker.finish()
    return (*pieces, last) if last else tuple(pieces)


def _check_arguments(name: str, skill: Skill, arguments: list[int | float | str]) -> None:
    if len(arguments) != len(skill.arguments):
        raise PlanError(f"{name} takes {len(skill.arguments)} arguments, not {len(arguments)}")
    for argument, value in zip(skill.arguments, arguments, strict=True):
        if problem := argument.problem(value):
            raise PlanError(f"{name}: {problem}")


def _literal(token: Token, expected: str) -> Value:
    if token.value is None:
        _unexpected(token, expected)
    return token.value


def _take(token: Token, mark: str) -> None:
    if token.kind != "mark" or token.text != mark:
        _unexpected(token, f"{mark!r}")


def _unexpected(token: Token, expected: str) -> NoReturn:
    raise PlanError(f"expected {expected}, not {token.text!r}")
