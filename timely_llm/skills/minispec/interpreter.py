"""A robot's side of the plan language: executes segments as they come. Pure logic, no clock."""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from timely_llm.core.errors import PlanError
from timely_llm.core.segment import SkillCall, Value
from timely_llm.skills.checkers import SegmentReader
from timely_llm.skills.skill_set import SkillSet
from timely_llm.skills.stop_checker import BlockEnd, Call, If, Op, Piece, Repeat, Return, Term

_COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    ">": operator.gt,
    "<=": operator.le,
    ">=": operator.ge,
}


@dataclass(frozen=True)
class Do:
    """Make this call, then `resume` with what it returns.

    Attributes:
        index: the segment in which the call is written; a loop goes back to earlier ones.
        term: what the call's value is compared with; None: the call is a statement.
    """

    call: SkillCall
    index: int
    term: Term | None = None


@dataclass(frozen=True)
class NeedMore:
    """All that has come is executed; the plan goes on."""


@dataclass(frozen=True)
class Ended:
    """The plan is over: it returned `value`, or there is nothing more of it (None)."""

    value: Value | None = None

    @property
    def returned(self) -> bool:
        """Whether the plan ended by a return; segments that follow are not needed."""
        return self.value is not None


@dataclass(frozen=True)
class Event:
    """A segment was started or finished; skipped if the condition of its block did not hold.

    A loop that goes back to a segment is no event: what counts is the first time.

    Attributes:
        value: what the segment's blocking call returned, if it made one (finished).
    """

    kind: Literal["started", "finished"]
    index: int
    skipped: bool = False
    value: Value | None = None


@dataclass
class _Frame:
    """An open block: where its body begins, and how often it runs from here."""

    start: int
    left: int


class Interpreter:
    """Executes one plan.

    Segments may come twice or out of order; each is used once, in order. A last segment that
    comes again with a longer text only adds closing brackets. What comes after the last one is
    not looked at.

    Raises:
        PlanError: from `add`, `complete` and `close`, if a segment's text is no plan, or if one
            comes again with other words. Nothing of such a segment is executed.
    """

    def __init__(self, skill_set: SkillSet) -> None:
        self._reader = SegmentReader(skill_set)
        self._waiting: dict[int, str] = {}
        self._taken: list[str] = []
        self._last: int | None = None
        self._closed = False
        self._ops: list[tuple[Op, int]] = []
        self._next = 0
        self._frames: list[_Frame] = []
        self._skip_depth = 0
        self._alternative = 0
        self._term = 0
        self._segment = -1
        self._executed = False
        self._value: Value | None = None
        self._finished = -1
        self._events: list[Event] = []
        self._ended: Ended | None = None

    def add(self, index: int, text: str, final: bool = False) -> None:
        """Take a segment's text; after the final one and all before it, nothing more comes."""
        if self._closed or (self._last is not None and index > self._last):
            return
        known = self._taken[index] if index < len(self._taken) else self._waiting.get(index, "")
        if not (text.startswith(known) or known.startswith(text)):
            raise PlanError(f"segment {index} came again with other words")
        if final:
            self._last = index
        if index >= len(self._taken):
            self._waiting[index] = max(known, text, key=len)
        elif len(text) > len(known):
            self._lengthen(index, text)
        while len(self._taken) in self._waiting and not self._after_the_last:
            taken = len(self._taken)
            self._taken.append(self._waiting.pop(taken))
            self._extend(taken, self._reader.read(self._taken[taken]))
        if self._after_the_last:
            self.close()

    def complete(self, plan: str) -> None:
        """Take a whole plan: what of it has not come as a segment is executed as one more."""
        if self._closed or self._ended is not None:
            return
        self._waiting.clear()
        taken = "".join(self._taken)
        if not plan.startswith(taken):
            raise PlanError("the whole plan does not begin with the segments that came")
        missing = plan[len(taken) :]
        if missing:
            self.add(len(self._taken), missing)
        self.close()

    def close(self) -> None:
        """Record that the last segment has come."""
        if self._closed:
            return
        self._closed = True
        last = self._reader.close()
        if last is not None:
            self._extend(len(self._taken) - 1, [last])

    @property
    def segment(self) -> int:
        """The newest segment that was begun; -1 before the first.

        Later rounds of a loop belong to the segment that ends the loop.
        """
        return self._segment

    def events(self) -> list[Event]:
        """Return the segments started and finished since the last call, in order."""
        events, self._events = self._events, []
        return events

    def next(self) -> Do | NeedMore | Ended:
        """Return what to do now. After `Do`, call `resume` before asking again."""
        while self._ended is None:
            if self._next == len(self._ops):
                return self._at_the_end()
            op, index = self._ops[self._next]
            if self._skip_depth:
                self._skip(op, index)
                continue
            self._enter(index, executed=True)
            match op:
                case Call(call):
                    return Do(call, index)
                case If(alternatives):
                    term = alternatives[self._alternative][self._term]
                    return Do(term.call, index, term)
                case Repeat(count):
                    self._next += 1
                    self._frames.append(_Frame(self._next, count))
                case BlockEnd():
                    self._end_block()
                case Return(value):
                    self._ended = Ended(value)
                    self._finish(self._segment)
        return self._ended

    def resume(self, value: Value) -> None:
        """Go on after a call that returned `value`."""
        op, _ = self._ops[self._next]
        if isinstance(op, If):
            self._decide(op, value)
            return
        if isinstance(op, Call) and op.call.blocking:
            self._value = value
        self._next += 1

    @property
    def _after_the_last(self) -> bool:
        return self._last is not None and len(self._taken) > self._last

    def _lengthen(self, index: int, text: str) -> None:
        """Take what a segment says more than when it was read: the marks that end a plan."""
        again = PlanError(f"segment {index} came again with other words")
        if index < len(self._taken) - 1:
            raise again
        pieces = self._reader.read_more(text[len(self._taken[index]) :])
        if any(not isinstance(op, Repeat | BlockEnd) for piece in pieces for op in piece.ops):
            raise again
        self._taken[index] = text
        self._extend(index, pieces)

    def _extend(self, index: int, pieces: list[Piece]) -> None:
        self._ops += [(op, index) for piece in pieces for op in piece.ops]

    def _at_the_end(self) -> NeedMore | Ended:
        self._finish(self._segment)
        if not self._closed:
            return NeedMore()
        self._ended = Ended()
        return self._ended

    def _decide(self, op: If, value: Value) -> None:
        """Take a term's value; short circuit, "&" before "|"."""
        terms = op.alternatives[self._alternative]
        if _holds(terms[self._term], value):
            self._term += 1
            if self._term < len(terms):
                return
            self._next += 1
            self._frames.append(_Frame(self._next, 1))
        else:
            self._term = 0
            self._alternative += 1
            if self._alternative < len(op.alternatives):
                return
            self._next += 1
            self._skip_depth = 1
        self._term = self._alternative = 0

    def _skip(self, op: Op, index: int) -> None:
        """Pass over an operation of a block that is not entered."""
        self._enter(index, executed=False)
        self._next += 1
        if isinstance(op, If | Repeat):
            self._skip_depth += 1
        elif isinstance(op, BlockEnd):
            self._skip_depth -= 1

    def _end_block(self) -> None:
        frame = self._frames[-1]
        frame.left -= 1
        if frame.left:
            self._next = frame.start
        else:
            self._frames.pop()
            self._next += 1

    def _enter(self, index: int, executed: bool) -> None:
        """Note that an operation of a segment is reached; a loop going back is no news."""
        if index > self._segment:
            self._finish(self._segment)
            self._segment = index
            self._executed, self._value = False, None
            self._events.append(Event("started", index))
        if index == self._segment:
            self._executed = self._executed or executed

    def _finish(self, index: int) -> None:
        if index > self._finished:
            self._finished = index
            self._events.append(Event("finished", index, not self._executed, self._value))


def _holds(term: Term, value: Value) -> bool:
    """Return whether a term holds; values of different kinds are only ever unequal."""
    if isinstance(term.literal, bool) and term.comparison in ("==", "!="):
        return _COMPARE[term.comparison](bool(value), term.literal)
    if isinstance(value, str) != isinstance(term.literal, str):
        return term.comparison == "!="
    return _COMPARE[term.comparison](value, term.literal)
