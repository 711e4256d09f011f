"""A plan being executed by a robot's callables, as its segments come, in one thread."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection
from dataclasses import replace
from pathlib import Path

from timely_llm.core.arguments import function, kind, seconds
from timely_llm.core.errors import SkillFailed, TimelyError
from timely_llm.core.request import PlanResult
from timely_llm.core.segment import Segment, SkillCall, Value
from timely_llm.core.text import quoted
from timely_llm.robots.client.call_log import CallLog, LoggedCall
from timely_llm.robots.client.execution import Executed, MadeCall, Progress, ProgressKind
from timely_llm.robots.client.open_plan import Execution, OpenPlan, too_late
from timely_llm.robots.client.pending import PlanClientError, ServerLost
from timely_llm.robots.epoch_run import EpochRun, ExecutionEvent
from timely_llm.robots.plan_follower import PlanFollower
from timely_llm.skills.callables import Callables
from timely_llm.skills.minispec.interpreter import Do
from timely_llm.skills.skill_set import SkillSet, load_skill_set, one_line

KINDS: dict[tuple[str, bool], ProgressKind] = {
    ("started", False): "started",
    ("finished", False): "finished",
    ("finished", True): "skipped",
    ("failed", False): "failed",
}
"""What is shown of a segment's event, by the event's kind and whether the segment was skipped."""
MAX_REASON = 300
"""Characters of the longest reason of a failure."""


def check_execution(
    on_progress: object, absent: object, skill_set: object, timeout_s: float, log: object
) -> None:
    """Check the types of the arguments of `execute`.

    Raises:
        PlanClientError: one has the wrong type.
    """
    function("on_progress", on_progress, PlanClientError)
    seconds("timeout_s", timeout_s, error=PlanClientError)
    if log is not None:
        kind("log", log, CallLog, PlanClientError)
    names = [absent] if isinstance(absent, str) else absent
    if not isinstance(names, Collection) or not all(isinstance(name, str) for name in names):
        raise PlanClientError(f"absent must be names of skills, not {quoted(absent)}")
    if skill_set is not None and not isinstance(skill_set, (SkillSet, str, Path)):
        raise PlanClientError(
            f"skill_set must be a skill set or the path of its file, not {quoted(skill_set)}"
        )


class CalledRun(EpochRun):
    """An epoch with calls that a `PlanRun` makes.

    Attributes:
        texts: texts of the segments that were read.
        final: the last segment was read.
    """

    def __init__(self, skill_set: SkillSet) -> None:
        super().__init__(skill_set)
        self.texts: list[str] = []
        self.final = False

    def receive(self, index: int, text: str, final: bool, now: float) -> None:
        """Take a segment; raises as `EpochRun.receive`."""
        super().receive(index, text, final, now)
        self.texts[index:] = [text]
        self.final = final

    def complete(self, plan: str, now: float) -> None:
        """Take the whole plan; raises as `EpochRun.complete`."""
        super().complete(plan, now)
        self.texts.append(plan[sum(map(len, self.texts)) :])

    def _begin(self, call: Do, now: float) -> None:
        """Leave the call to the `PlanRun`."""


class PlanRun:
    """Executes one plan and reports.

    A segment is read only when all segments before it are executed. It is executed only when all of
    it was read and checked.

    Args:
        task: the plan.
        skill_set: that of the plan.
        skills, absent, otherwise: the robot's callables; see `Callables`.
        on_progress: called with each event.
        timeout_s: longest wait for each segment, and for the end of the request.
        log: keeps the calls; calls of this request that it has already are not made again.

    Raises:
        PlanClientError: the skills do not fit the skill set.
    """

    def __init__(
        self,
        task: OpenPlan,
        skill_set: SkillSet,
        skills: object,
        absent: Collection[str] = (),
        otherwise: Callable[..., object] | None = None,
        on_progress: Callable[[Progress], None] | None = None,
        timeout_s: float = 30.0,
        log: CallLog | None = None,
    ) -> None:
        self._task = task
        self._log = CallLog() if log is None else log
        self._callables = Callables(skill_set, skills, absent, otherwise, PlanClientError)
        self._on_progress = on_progress
        self._timeout_s = timeout_s
        self._calls: list[MadeCall] = []
        self._log.begin(task.request_id)
        self._known: dict[int, deque[LoggedCall]] = {}  # logged calls by epoch
        self._recalled_s = 0.0
        self._reason = ""
        self._plan = PlanFollower(lambda: CalledRun(skill_set), replaces=lambda: True)

    def run(self) -> Executed:
        """Execute the plan to its end; an earlier end cancels its request.

        Raises:
            PlanTimeout: the next segment or the end did not come in time.
            PlanClientError: the request ended before the plan did.
            BaseException: what interrupted a skill, or `on_progress` raised.
        """
        try:
            self._execute()
            if self._plan.run.returned:
                self._task.returned()
            result = self._task.await_result(self._timeout_s)
        except BaseException as error:
            if not isinstance(error, ServerLost):  # its plan may still be there
                self._log.end()
            self._task.ask_to_cancel()
            if isinstance(error, PlanClientError):
                error.calls = tuple(self._calls)
            raise
        self._log.end()
        end = self._plan.run.end
        return Executed(result, tuple(self._calls), end.value if end is not None else None)

    def _execute(self) -> None:
        """Read segments and make calls until the plan has ended."""
        plan, task = self._plan, self._task
        while True:
            stopped = task.stopped()
            if stopped is not None:
                raise stopped
            if task.void(plan.epoch):
                plan.give_up()
            if plan.ending == "failed":
                raise too_late(self._reason)
            call = plan.run.call
            if plan.failed or (call is None and not plan.run.ended):
                self._read_on()
            elif call is not None:
                self._make(call)
            else:
                return

    def _read_on(self) -> None:
        """Follow the next segment, or the result; wait for it if need be."""
        task = self._task
        task.wait_for(
            lambda: task.stopped() is not None or self._news() is not None,
            self._timeout_s, "sent no segment",
        )  # fmt: skip
        news = self._news()
        if news is None or task.stopped() is not None:
            return
        if isinstance(news, Segment):
            self._plan.offer(news, self._now())
        elif self._plan.result is None:
            self._plan.finish(news, self._now())
        else:
            raise PlanClientError("the request ended with an older plan than that of its segments")
        self._report()

    def _news(self) -> Segment | PlanResult | None:
        """Return the next segment, or a longer last one, or the result when no segment is left."""
        task, epoch, run = self._task, self._plan.epoch, self._plan.run
        result = task.ending
        if result is not None and result.epoch > max(epoch, task.epoch):
            return result
        if task.epoch > epoch:
            segment = task.known(task.epoch, 0)
        else:
            index = len(run.texts)
            segment = task.known(epoch, index)
            if segment is None and index and not run.final:
                last = task.known(epoch, index - 1)
                segment = last if last is not None and last.final else None
        return segment or result

    def _now(self) -> float:
        """Return the robot's time, plus the durations of calls in its earlier lives."""
        return self._task.seconds() + self._recalled_s

    def _make(self, action: Do) -> None:
        """Make a call; the plan goes on with its value, fails with it, or is void by now."""
        call, index, epoch = action.call, action.index, self._plan.epoch
        if epoch not in self._known:
            self._known[epoch] = deque(self._log.calls(epoch))
        if self._known[epoch] and not self._is_made_again(self._known[epoch]):
            self._recall(action, self._known[epoch].popleft())
            return
        execution = Execution(self._task, epoch, index, call)
        self._show("call", index, call=call)
        self._log.begun(call, epoch, index)
        value: Value | None = None
        reason, began_s = "", self._task.seconds()
        try:
            value = self._callables.make(call, action.term, execution)
        except Exception as error:
            reason = sentence(error)
        duration_s = self._task.seconds() - began_s
        self._log.made(None if reason else value, reason, duration_s)
        void = execution.reason
        made = None if reason or void else value
        self._calls.append(MadeCall(call, epoch, index, duration_s, made, reason or void))
        if not reason:
            self._show("returned", index, call=call, value=made, duration_s=duration_s)
        if not void and not self._task.void(epoch):
            self._go_on(call, value, reason)

    def _is_made_again(self, known: deque[LoggedCall]) -> bool:
        """Return whether the next call was interrupted by the robot's end, and is made again."""
        if known[0].returned or not self._log.again:
            return False
        known.popleft()
        self._log.drop_interrupted()
        return True

    def _recall(self, action: Do, known: LoggedCall) -> None:
        """Go on with the value of a call in an earlier life of the robot.

        Raises:
            PlanClientError: the log is one of another plan.
        """
        call, index = action.call, action.index
        if (known.call, known.index) != (str(call), index):
            raise PlanClientError(
                f"the log of calls does not fit the plan: it has {known.call} in segment"
                f" {known.index}, and the plan calls {call} in segment {index}"
            )
        if not known.returned:
            known = replace(known, error=f"the robot was restarted while it executed {call}")
            self._log.made(None, known.error, 0.0)
        value, reason, duration_s = known.value, known.error, known.duration_s
        self._recalled_s += duration_s
        self._calls.append(MadeCall(call, self._plan.epoch, index, duration_s, value, reason))
        self._go_on(call, value, reason)

    def _go_on(self, call: SkillCall, value: Value | None, reason: str) -> None:
        """Go on after a call: with its value, or the reason of its failure."""
        if reason:
            self._plan.fail(reason, self._now())
        else:
            self._plan.resume(True if value is None else value, self._now())
        self._report(call if reason else None)

    def _report(self, failed: SkillCall | None = None) -> None:
        """Report and show the events of segments; `failed` is the call that failed."""
        for event in self._plan.drain():
            if event.kind != "returned":  # reported when the execution has ended
                self._report_event(event, failed)

    def _report_event(self, event: ExecutionEvent, failed: SkillCall | None) -> None:
        task, kind = self._task, KINDS[event.kind, event.skipped]
        if event.kind == "failed":
            self._reason = event.reason
        report = event.report(task.request_id, task.agent, self._plan.epoch)
        assert report is not None, "calls are shown as they are made"
        if event.kind == "failed" or task.ending is None:
            task.send_report(report)
        took_s = report.duration_s
        self._show(kind, event.index, call=failed, duration_s=took_s, reason=event.reason)

    def _show(
        self,
        kind: ProgressKind,
        index: int,
        *,
        call: SkillCall | None = None,
        value: Value | None = None,
        duration_s: float = 0.0,
        reason: str = "",
    ) -> None:
        if self._on_progress is not None:
            texts = self._plan.run.texts
            text = texts[index] if index < len(texts) else ""
            self._on_progress(
                Progress(kind, self._plan.epoch, index, text, call, value, duration_s, reason)
            )


def fitting(
    given: SkillSet | str | Path | None, name: str, asked: Callable[[str], SkillSet]
) -> SkillSet:
    """Return the skill set of a plan.

    Args:
        given: the skill set or its file, from the user; None: the server is asked.
        name: name of the plan's skill set.
        asked: asks the server.

    Raises:
        PlanClientError: there is no such skill set, or the given one has another name.
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


def sentence(error: Exception) -> str:
    """Return an exception as one line for the model and the user, clipped."""
    try:
        words = one_line(str(error), "")
    except Exception:  # it cannot even be written
        words = ""
    if not isinstance(error, SkillFailed) or not words:
        name = type(error).__name__
        words = f"{name}: {words}" if words else name
    return words if len(words) <= MAX_REASON else words[: MAX_REASON - 3] + "..."
