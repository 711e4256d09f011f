"""What a program sees of the execution of a plan: its progress, and what was done."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from timely_llm.core.request import PlanResult
from timely_llm.core.segment import SkillCall, Value

ProgressKind = Literal["started", "call", "returned", "finished", "skipped", "failed"]


@dataclass(frozen=True)
class MadeCall:
    """A call of a skill that was made.

    Attributes:
        call: the skill, with its checked arguments.
        epoch, index: the segment that contains the call.
        duration_s: seconds that the call took.
        value: the returned value, if the plan uses it: in a condition, or of a blocking call.
        error: why the plan did not go on with the value, in one sentence; empty if it did.
    """

    call: SkillCall
    epoch: int
    index: int
    duration_s: float
    value: Value | None = None
    error: str = ""


@dataclass(frozen=True)
class Executed:
    """A plan that was executed to its end.

    Attributes:
        result: how the request ended, with the plan and its timings.
        calls: the calls that were made, of all epochs, in order.
        value: what the plan returned; None: it ended without a return statement.
    """

    result: PlanResult
    calls: tuple[MadeCall, ...]
    value: Value | None

    @property
    def plan(self) -> str:
        """The text of the plan that was executed to its end: that of the last epoch."""
        return self.result.plan

    @property
    def epochs(self) -> int:
        """Number of plans: one more than segments failed."""
        return self.result.epoch + 1


@dataclass(frozen=True)
class Progress:
    """An event of an execution.

    Attributes:
        kind: a segment was `started`, `finished`, `skipped` because the condition of its block did
            not hold, or `failed`; a `call` is about to be made; a call `returned` without an error.
        epoch, index: the segment; of a call, the one that contains it.
        text: the segment's text.
        call: of `call` and `returned`; of `failed`, the call that failed, None if no call did.
        value: what the call returned, if the plan uses it (`returned`).
        duration_s: seconds of the call (`returned`) or of the segment (`finished`, `failed`).
        reason: why the segment failed, in one sentence.
    """

    kind: ProgressKind
    epoch: int
    index: int
    text: str
    call: SkillCall | None = None
    value: Value | None = None
    duration_s: float = 0.0
    reason: str = ""
