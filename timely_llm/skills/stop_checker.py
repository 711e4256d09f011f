"""Stop checkers: where a generated text can be cut into pieces that a robot can execute."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from timely_llm.core.segment import SkillCall, Value


@dataclass(frozen=True)
class Term:
    """One call of a condition, compared with a literal.

    Attributes:
        comparison: "==", "!=", "<", ">", "<=" or ">=".
    """

    call: SkillCall
    comparison: str = "=="
    literal: Value = True


@dataclass(frozen=True)
class Call:
    """Execute a skill."""

    call: SkillCall


@dataclass(frozen=True)
class If:
    """Enter the block if one of the alternatives has only terms that hold."""

    alternatives: tuple[tuple[Term, ...], ...]


@dataclass(frozen=True)
class Repeat:
    """Execute the block `count` times."""

    count: int


@dataclass(frozen=True)
class BlockEnd:
    """The end of the innermost block."""


@dataclass(frozen=True)
class Return:
    """End the plan with a value."""

    value: Value


Op = Call | If | Repeat | BlockEnd | Return


@dataclass(frozen=True)
class Piece:
    """A piece of a plan that can be executed by itself.

    Attributes:
        text: its words; the texts of all pieces and the tail make up the plan.
        calls: the skills named in it, conditions included.
        predicted_s: by how many seconds it makes the plan longer.
        ops: what to execute, in order.
    """

    text: str
    calls: tuple[SkillCall, ...]
    predicted_s: float
    ops: tuple[Op, ...]

    @property
    def blocking(self) -> bool:
        """Whether the plan goes on only when the value of its last call is known."""
        return any(call.blocking for call in self.calls)


class StopChecker(Protocol):
    """Reads one generation's text as it comes, in time proportional to its length."""

    @property
    def done(self) -> bool:
        """Whether the plan is complete, whatever the model would say after it."""
        ...

    @property
    def rest(self) -> str:
        """What the last `feed` did not read: the words after a blocking call.

        The model made them before it knew what the call returns, so they are worth nothing. Empty
        if nothing is left but white space.
        """
        ...

    @property
    def tail(self) -> str:
        """What was read after the last boundary."""
        ...

    def feed(self, text: str) -> list[Piece]:
        """Read some text, split anywhere, and return the pieces that it completes.

        It stops after a piece with a blocking call, and keeps what comes after it as `rest`.

        Raises:
            PlanError: no plan begins with the text read so far; what is wrong and where.
        """
        ...

    def finish(self) -> tuple[Piece | None, str]:
        """End the text: return the last piece, if one was open, and the words after it.

        Raises:
            PlanError: the text ends in the middle of something, or there was no plan in it.
        """
        ...
