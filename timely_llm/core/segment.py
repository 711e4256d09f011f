"""Segments: pieces of a plan that a robot can execute by themselves."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum

Value = bool | int | float | str


class ArgumentType(IntEnum):
    """Type of a skill's argument; the numbers are those of SkillArgument.msg."""

    TEXT = 0
    INTEGER = 1
    NUMBER = 2
    CHOICE = 3


@dataclass(frozen=True)
class SkillParameter:
    """Name and type of a skill's argument, as the skill set declares them."""

    name: str
    type: ArgumentType


@dataclass(frozen=True)
class SkillCall:
    """One call of a skill.

    Attributes:
        name: name of the skill.
        arguments: values in the order of the skill set.
        predicted_s: predicted duration, seconds.
        blocking: the generation waits for the skill's return value.
        parameters: names and types of the arguments; empty: unknown.
    """

    name: str
    arguments: tuple[int | float | str, ...] = ()
    predicted_s: float = 0.0
    blocking: bool = False
    parameters: tuple[SkillParameter, ...] = field(default=(), compare=False, repr=False)

    def __str__(self) -> str:
        return f"{self.name}({','.join(repr(a) for a in self.arguments)})"


@dataclass(frozen=True)
class Segment:
    """A delivered piece of a plan.

    Attributes:
        request_id: id of the plan request.
        agent: the robot that asked.
        index: 0 for the first of an epoch; a robot executes each (request_id, epoch, index) once.
        epoch: raised when a segment failed; robots ignore segments of an older epoch.
        text: statements of the segment; all segments of an epoch in order are the plan's text.
        calls: all skills that the text names, also those in conditions and loops. The text alone
            decides which calls are made, and how often.
        predicted_s: predicted execution time, seconds.
        final: no segment follows. The last segment may be delivered twice: the second time it is
            final, with closing brackets added to its text.
        given: the plan was written by hand and came with the request.
    """

    request_id: str
    agent: str
    index: int
    text: str
    calls: tuple[SkillCall, ...] = ()
    predicted_s: float = 0.0
    final: bool = False
    epoch: int = 0
    given: bool = False

    @property
    def blocking(self) -> bool:
        """Whether the generation waits for the value that the robot reports."""
        return any(call.blocking for call in self.calls)
