"""A plan being executed by a robot's callables, as its segments come: no ROS, in one thread."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from pathlib import Path

from timely_llm.core.errors import ConfigurationError, PlanError, SkillFailed, TimelyError
from timely_llm.core.request import PlanResult, ReportState
from timely_llm.core.segment import SkillCall, Value
from timely_llm.ros.execution import Executed, Execution, Kind, MadeCall, Progress
from timely_llm.ros.pending import PlanClientError
from timely_llm.ros.plan_task import PlanTask, too_late
from timely_llm.skills.callables import Callables
from timely_llm.skills.interpreter import Do, Ended, Interpreter, NeedMore
from timely_llm.skills.skill_set import SkillSet, load_skill_set
from timely_llm.skills.templates import one_line

MAX_REASON = 300
"""Characters of the longest reason of a failure."""


class PlanRun:
    """Executes one plan and reports.

    A segment is read only when all before it are executed, and executed only when all of it was
    read and checked.

    Args:
        task: the plan.
        skill_set: that of the plan.
        skills, absent, otherwise: what is called; see `Callables`.
        on_progress: called with everything that happens.
        timeout_s: how long to wait for each segment, and for the end of the request.

    Raises:
        PlanClientError: the skills do not fit the skill set.
    """

    def __init__(
        self,
        task: PlanTask,
        skill_set: SkillSet,
        skills: object,
        absent: Collection[str] = (),
        otherwise: Callable[..., object] | None = None,
        on_progress: Callable[[Progress], None] | None = None,
        timeout_s: float = 30.0,
    ) -> None:
        self._task = task
        self._skill_set = skill_set
        self._callables = callables_of(skill_set, skills, absent, otherwise)
        self._on_progress = on_progress
        self._timeout_s = timeout_s
        self._calls: list[MadeCall] = []
        self._begin(0)

    def run(self) -> Executed:
        """Execute the plan to its end; whatever ends it before, its request is canceled.

        Raises:
            PlanTimeout: the next segment or the end did not come in time.
            PlanClientError: the request ended before the plan did.
            BaseException: what interrupted a skill, or `on_progress` raised.
        """
        try:
            ended = self._execute()
            if ended.returned:
                self._task.returned()
            result = self._task.await_result(self._timeout_s)
        except BaseException as error:
            self._task.ask_to_cancel()
            if isinstance(error, PlanClientError):
                error.calls = tuple(self._calls)
            raise
        return Executed(result, tuple(self._calls), ended.value)

    def _begin(self, epoch: int) -> None:
        self._epoch = epoch
        self._interpreter = Interpreter(self._skill_set)
        self._texts: list[str] = []
        self._final = False
        self._reason = ""
        self._began_s = 0.0

    def _execute(self) -> Ended:
        """Execute until the plan has ended."""
        while True:
            stopped = self._task.stopped()
            if stopped is not None:
                raise stopped
            if self._task.void(self._epoch):
                self._await_epoch()
                continue
            action = self._interpreter.next()
            self._tell_segments()
            if isinstance(action, Do):
                self._make(action)
            elif isinstance(action, NeedMore):
                self._read_on()
            else:
                return action

    def _await_epoch(self) -> None:
        """Wait for the plan that takes the place of a void one."""
        task, epoch = self._task, self._epoch
        self._wait(lambda: task.epoch > epoch or task.ending is not None)
        result = task.ending
        if task.epoch > epoch:
            self._begin(task.epoch)
        elif result is not None and result.epoch > epoch:
            self._begin(result.epoch)
        elif task.stopped() is None:
            raise too_late(self._reason)

    def _read_on(self) -> None:
        """Take the next segment, or what the last one says more; wait for it if need be."""
        task, epoch, index = self._task, self._epoch, len(self._texts)
        self._wait(lambda: self._new(index) is not None or task.epoch > epoch
                   or task.ending is not None)  # fmt: skip
        new, result = self._new(index), task.ending
        if task.stopped() is not None or task.void(epoch):
            return
        if result is not None and result.epoch > epoch:
            self._begin(result.epoch)
            return
        try:
            if new is not None:
                place, text, final = new
                self._interpreter.add(place, text, final)
                self._texts[place:] = [text]
                self._final = final
            elif result is not None:
                self._complete(result)
        except PlanError as error:
            self._fail(index if new is None else new[0], str(error))

    def _new(self, index: int) -> tuple[int, str, bool] | None:
        """Return what has come of the next segment, or newly of the last one read."""
        segment = self._task.known(self._epoch, index)
        if segment is None and index and not self._final:
            last = self._task.known(self._epoch, index - 1)
            segment = last if last is not None and last.final else None
        return None if segment is None else (segment.index, segment.text, segment.final)

    def _complete(self, result: PlanResult) -> None:
        """Make up for segments that got lost on the way by the whole plan."""
        lost = result.plan[sum(map(len, self._texts)) :]
        self._interpreter.complete(result.plan)
        self._texts.append(lost)

    def _make(self, action: Do) -> None:
        """Make a call; the plan goes on with its value, fails with it, or is void by now."""
        call, index = action.call, action.index
        execution = Execution(self._task, self._epoch, index, call)
        self._tell("call", index, call=call)
        value: Value | None = None
        reason, began_s = "", time.monotonic()
        try:
            value = self._callables.make(call, action.term, execution)
        except Exception as error:
            reason = sentence(error)
        duration_s = time.monotonic() - began_s
        void = execution.reason
        made = None if reason or void else value
        self._calls.append(MadeCall(call, self._epoch, index, duration_s, made, reason or void))
        self._tell("returned", index, call=call, value=made, duration_s=duration_s)
        if reason and not void:
            self._fail(max(self._interpreter.segment, 0), reason)
        elif not void:
            self._interpreter.resume(True if value is None else value)

    def _fail(self, index: int, reason: str) -> None:
        """Report a segment as failed; nothing more of its plan is executed."""
        duration_s = time.monotonic() - self._began_s if self._began_s else 0.0
        self._reason = reason
        self._task.tell(ReportState.FAILED, self._epoch, index, duration_s, reason)
        self._tell("failed", index, duration_s=duration_s, reason=reason)

    def _tell_segments(self) -> None:
        """Report the segments that began and ended."""
        now = time.monotonic()
        for event in self._interpreter.events():
            if event.kind == "started":
                self._began_s = now
                self._report(ReportState.STARTED, event.index)
                self._tell("started", event.index)
                continue
            # 0 seconds say that it was skipped: they teach nothing about its skills.
            duration_s = 0.0 if event.skipped else max(now - self._began_s, 1e-6)
            value = "" if event.value is None else one_line(str(event.value), "")
            self._report(ReportState.FINISHED, event.index, duration_s, value)
            self._began_s = 0.0
            kind: Kind = "skipped" if event.skipped else "finished"
            self._tell(kind, event.index, duration_s=duration_s)

    def _report(
        self, state: ReportState, index: int, duration_s: float = 0.0, value: str = ""
    ) -> None:
        if self._task.ending is None:
            self._task.tell(state, self._epoch, index, duration_s, value)

    def _tell(
        self,
        kind: Kind,
        index: int,
        *,
        call: SkillCall | None = None,
        value: Value | None = None,
        duration_s: float = 0.0,
        reason: str = "",
    ) -> None:
        if self._on_progress is not None:
            text = self._texts[index] if index < len(self._texts) else ""
            self._on_progress(
                Progress(kind, self._epoch, index, text, call, value, duration_s, reason)
            )

    def _wait(self, condition: Callable[[], bool]) -> None:
        task = self._task
        task.wait_for(
            lambda: task.stopped() is not None or condition(), self._timeout_s, "sent no segment"
        )


def fitting(
    given: SkillSet | str | Path | None, name: str, asked: Callable[[str], SkillSet]
) -> SkillSet:
    """Return the skill set of a plan.

    Args:
        given: by the user: the skill set, or the file it is in; None: the server knows it.
        name: the plan's.
        asked: asks the server.

    Raises:
        PlanClientError: there is none, or it is another one.
    """
    if given is None:
        return asked(name)
    try:
        known = given if isinstance(given, SkillSet) else load_skill_set(given)
    except TimelyError as error:
        raise PlanClientError(str(error)) from error
    if known.name != name:
        raise PlanClientError(f"the plan is one of {name!r}, not of the skill set {known.name!r}")
    return known


def callables_of(
    skill_set: SkillSet,
    skills: object,
    absent: Collection[str],
    otherwise: Callable[..., object] | None,
) -> Callables:
    """Return a robot's skills as its plans call them; see `Callables`.

    Raises:
        PlanClientError: they do not fit the skill set.
    """
    try:
        return Callables(skill_set, skills, absent, otherwise)
    except ConfigurationError as error:
        raise PlanClientError(str(error)) from error


def sentence(error: Exception) -> str:
    """Return what the model and the user are told of an exception: one line, clipped."""
    try:
        words = one_line(str(error), "")
    except Exception:  # it cannot even be written
        words = ""
    if not isinstance(error, SkillFailed) or not words:
        name = type(error).__name__
        words = f"{name}: {words}" if words else name
    return words if len(words) <= MAX_REASON else words[: MAX_REASON - 3] + "..."
