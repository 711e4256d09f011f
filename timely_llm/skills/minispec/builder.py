"""Builds the pieces of a plan: calls, open blocks, and their predicted seconds."""

from __future__ import annotations

from dataclasses import dataclass, field

from timely_llm.core.errors import PlanError
from timely_llm.core.segment import SkillCall, Value
from timely_llm.skills.execution_time import ExecutionTimes, checked_call
from timely_llm.skills.skill import Skill
from timely_llm.skills.stop_checker import BlockEnd, Call, If, Op, Piece, Repeat, Return, Term

MAX_DEPTH = 16
MAX_REPETITIONS = 10_000


@dataclass
class _Block:
    """An open block.

    Attributes:
        count: how often its body runs; 0 if a condition decides.
        predicted_s: seconds of the body.
        statements: calls, returns and conditions in the body.
    """

    count: int = 0
    predicted_s: float = 0.0
    statements: int = 0


@dataclass
class _Draft:
    """The piece being read."""

    calls: list[SkillCall] = field(default_factory=list)
    predicted_s: float = 0.0
    ops: list[Op] = field(default_factory=list)


class PlanBuilder:
    """Collects the statements that `MiniSpecChecker` reads, and cuts them into pieces.

    Args:
        times: predicts how long calls take.

    Attributes:
        cuts: number of pieces so far.
    """

    def __init__(self, times: ExecutionTimes) -> None:
        self._times = times
        self._draft = _Draft()
        self._blocks = [_Block(count=1)]
        self._pieces: list[Piece] = []
        self.cuts = 0

    @property
    def open_blocks(self) -> int:
        """Blocks without their end."""
        return len(self._blocks) - 1

    @property
    def blocked(self) -> bool:
        """Whether the last piece that was cut ends with a blocking call."""
        return bool(self._pieces) and self._pieces[-1].blocking

    def named(
        self, name: str, skill: Skill, arguments: list[int | float | str], condition: bool
    ) -> SkillCall:
        """Enter a call, as a statement or in a condition.

        Raises:
            PlanError: its arguments are not allowed, or it is a blocking call that is not a
                statement, or one inside a loop.
        """
        if skill.blocking:
            self._check_place(name, condition)
        call = checked_call(name, skill, arguments, self._times)
        self._draft.calls.append(call)
        return call

    def call(self, call: SkillCall) -> None:
        """Enter a statement that makes a call."""
        self._blocks[-1].statements += 1
        self._draft.ops.append(Call(call))
        self._lengthen(call.predicted_s)

    def returned(self, value: Value) -> bool:
        """Enter a return statement; say whether nothing after it is ever executed."""
        self._blocks[-1].statements += 1
        self._draft.ops.append(Return(value))
        return self.open_blocks == 0

    def condition(self, alternatives: list[list[Term]]) -> None:
        """Enter a condition and open its block.

        Only the first call is sure to be made: it alone counts, the lower bound of Ling et al.
        2024, §4.3.
        """
        self._blocks[-1].statements += 1
        self._draft.ops.append(If(tuple(tuple(terms) for terms in alternatives)))
        self._lengthen(alternatives[0][0].call.predicted_s)
        self._open(0)

    def loop(self, count: int) -> None:
        """Open a block that runs `count` times."""
        self._draft.ops.append(Repeat(count))
        self._open(count)

    def close_block(self) -> bool:
        """Close the innermost block; return whether it leaves something to do: a loop's rounds.

        Raises:
            PlanError: no block is open.
        """
        if not self.open_blocks:
            raise PlanError("'}' without a block to close")
        block = self._blocks.pop()
        self._draft.ops.append(BlockEnd())
        self._blocks[-1].predicted_s += block.predicted_s
        self._blocks[-1].statements += block.statements
        if block.count <= 1 or not block.statements:
            return False
        self._lengthen((block.count - 1) * block.predicted_s)
        return True

    def cut(self, text: str) -> None:
        """End the piece being read.

        Args:
            text: all characters since the last cut.
        """
        draft, self._draft = self._draft, _Draft()
        self.cuts += 1
        self._pieces.append(Piece(text, tuple(draft.calls), draft.predicted_s, tuple(draft.ops)))

    def take(self) -> list[Piece]:
        """Return the pieces cut since the last call."""
        pieces, self._pieces = self._pieces, []
        return pieces

    def _check_place(self, name: str, condition: bool) -> None:
        """Let a blocking call stand only where the model can read its value when it is made."""
        if condition:
            raise PlanError(
                f"{name} is blocking and cannot be part of a condition:"
                f" write {name}(...); as a statement, its value is read before the plan goes on"
            )
        if any(block.count for block in self._blocks[1:]):
            raise PlanError(
                f"{name} is blocking and cannot stand inside a loop: write it outside,"
                " or in an if-block"
            )

    def _open(self, count: int) -> None:
        self._blocks.append(_Block(count))
        if self.open_blocks > MAX_DEPTH:
            raise PlanError(f"blocks are nested deeper than {MAX_DEPTH}")
        repetitions = 1
        for block in self._blocks:
            repetitions *= block.count or 1
        if repetitions > MAX_REPETITIONS:
            raise PlanError(f"loops repeat a statement more than {MAX_REPETITIONS} times")

    def _lengthen(self, seconds: float) -> None:
        self._draft.predicted_s += seconds
        self._blocks[-1].predicted_s += seconds
