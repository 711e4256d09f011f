"""Segments: pieces of a plan that a robot can execute by themselves."""

from __future__ import annotations

from dataclasses import dataclass

Value = bool | int | float | str


@dataclass(frozen=True)
class SkillCall:
    """One call of a skill, with its predicted duration in seconds."""

    name: str
    arguments: tuple[int | float | str, ...] = ()
    predicted_s: float = 0.0
    blocking: bool = False

    def __str__(self) -> str:
        return f"{self.name}({','.join(repr(a) for a in self.arguments)})"


@dataclass(frozen=True)
class Segment:
    """A delivered piece of a plan.

    Attributes:
        request_id: the plan it belongs to.
        agent: the robot that asked.
        index: 0 for the first of an epoch; a robot executes each (request_id, epoch, index) once.
        epoch: raised when a segment failed; segments of an older one than the newest seen are
            ignored.
        text: its words; the texts of all of an epoch's segments in order are its plan's text.
        calls: the skills named in it, conditions included. They stand inside conditions and loops
            of this and earlier segments: what is called, and how often, only the text says.
        predicted_s: seconds the robot is expected to be busy with it.
        final: no segment follows. A last segment may be delivered a second time, only to say so
            and to add closing brackets to its text.
    """

    request_id: str
    agent: str
    index: int
    text: str
    calls: tuple[SkillCall, ...] = ()
    predicted_s: float = 0.0
    final: bool = False
    epoch: int = 0

    @property
    def blocking(self) -> bool:
        """Whether generation waits for what the robot reports of it."""
        return any(call.blocking for call in self.calls)
