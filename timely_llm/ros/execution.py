"""What users see of the execution of a plan: progress, a flag for skills, and what was done."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from timely_llm.core.request import PlanResult
from timely_llm.core.segment import SkillCall, Value

if TYPE_CHECKING:
    from timely_llm.ros.plan_task import PlanTask


Kind = Literal["started", "call", "returned", "finished", "skipped", "failed"]


@dataclass(frozen=True)
class MadeCall:
    """A call of a skill that was made.

    Attributes:
        call: the skill, with its arguments as they were checked.
        epoch, index: the segment in which it is written.
        duration_s: how long it took.
        value: what its callable returned, if the plan uses it: in a condition, or if it blocks.
        error: why the plan did not, in one sentence; empty if it did.
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
        """How many plans it took: one more than segments failed."""
        return self.result.epoch + 1


@dataclass(frozen=True)
class Progress:
    """Something that happened in an execution.

    Attributes:
        kind: a segment was `started`, `finished`, `skipped` because the condition of its block did
            not hold, or `failed`; a `call` is about to be made; it `returned`.
        epoch, index: the segment; of a call, the one in which it is written.
        text: the segment's words.
        call: of `call` and `returned`.
        value: what the call returned, if the plan uses it (`returned`).
        duration_s: of the call (`returned`), or of the segment (`finished`, `failed`).
        reason: why the segment failed, in one sentence.
    """

    kind: Kind
    epoch: int
    index: int
    text: str
    call: SkillCall | None = None
    value: Value | None = None
    duration_s: float = 0.0
    reason: str = ""


class Execution:
    """The execution that a running skill is part of: handed to callables that ask for it.

    A callable asks with a keyword of this name: `def g(name, *, execution)`. A running callable
    cannot be ended from outside; by this object it gets to know that it should end. Its methods may
    be called from any thread.

    Attributes:
        call: the call that is being made.
        epoch, index: the segment in which it is written.
    """

    def __init__(self, task: PlanTask, epoch: int, index: int, call: SkillCall) -> None:
        self._task = task
        self.call = call
        self.epoch, self.index = epoch, index

    @property
    def canceled(self) -> bool:
        """Whether the plan of this call is void: nothing more of it will be executed."""
        return bool(self.reason)

    @property
    def reason(self) -> str:
        """Why the plan is void, in one sentence; empty while it is not."""
        return self._task.void(self.epoch)

    def wait(self, timeout_s: float) -> bool:
        """Sleep, at most until the plan is void; return whether it is."""
        return self._task.wait_void(self.epoch, timeout_s)

    def cancel(self) -> None:
        """End the request; does not wait. The execution ends when the running skill returns."""
        self._task.ask_to_cancel()
