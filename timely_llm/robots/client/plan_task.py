"""One plan that was asked for, as its client sees it: usable from any thread."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from timely_llm.core.arguments import kind, seconds, text
from timely_llm.core.request import SHORTEST_S, ErrorCode, PlanResult, ReportState
from timely_llm.core.segment import Segment, SkillCall
from timely_llm.robots.client.call_log import CallLog
from timely_llm.robots.client.execution import Executed, Progress
from timely_llm.robots.client.open_plan import OpenPlan, ReportSender, foreign, too_late
from timely_llm.robots.client.pending import PlanClientError, PlanTimeout, failed

if TYPE_CHECKING:
    from timely_llm.skills.skill_set import SkillSet

CALL = re.compile(r"([A-Za-z_]\w*)\(((?:'[^']*'|\"[^\"]*\"|[^()'\"])*)\)")
ARGUMENT = re.compile(r"'[^']*'|\"[^\"]*\"|[^,\s]+")
CLOSERS = " \n;}"
"""Closing marks of a plan, which may come after its last segment."""


class TaskSender(ReportSender, Protocol):
    """The part of a client that a task needs."""

    def skill_set(self, name: str) -> SkillSet:
        """Return a skill set that the server has registered.

        Raises:
            PlanClientError: the server has none of this name, or did not answer in time.
        """
        ...


class PlanTask(OpenPlan):
    """A plan that was asked for; made by `PlanClient.submit`.

    `execute` runs it with a robot's skills. `result` alone waits for the text of a plan that no
    robot executes. `segments` is for programs with an executor of their own.

    Args:
        request_id: unique on the server.
        agent: the robot's name.
        sender: the client that sends reports.
        skill_set: name of the skill set of its plan.
        elsewhere: another program executes the plan and reports.
        seconds: returns the robot's time, by which durations are measured.
        replaces: returns whether the server replaces plans that did not fail.
        resumed: the request is an earlier one: no segment counts before `adopt`.
    """

    def __init__(
        self,
        request_id: str,
        agent: str,
        sender: TaskSender,
        skill_set: str = "",
        elsewhere: bool = False,
        seconds: Callable[[], float] = time.monotonic,
        replaces: Callable[[], bool] = lambda: False,
        resumed: bool = False,
    ) -> None:
        # Another program's failures are not reported here.
        super().__init__(
            request_id, agent, sender, seconds, lambda: elsewhere or replaces(), resumed
        )
        self.skill_set = skill_set
        self._sender = sender
        self._elsewhere = elsewhere
        self._next = 0
        self._began_s: dict[tuple[int, int], float] = {}
        self._read = ""
        self._reported = False
        self._executing: bool | None = None  # None: `execute` was not called yet
        self._users: set[threading.Thread] = set()  # threads that read segments or report
        self._finished: set[tuple[int, int]] = set()

    def execute(
        self,
        skills: object,
        *,
        on_progress: Callable[[Progress], None] | None = None,
        absent: Collection[str] = (),
        otherwise: Callable[..., object] | None = None,
        skill_set: SkillSet | str | Path | None = None,
        timeout_s: float = 30.0,
        log: CallLog | None = None,
    ) -> Executed:
        """Execute the plan as it comes, and report; return what was done when it has ended.

        Conditions, loops, values and returns are those of the plan; docs/executing_plans.md has the
        rules. Skills are called one at a time, in the thread that calls `execute`. They get the
        plan's arguments by position: int, float or str, within the bounds and choices of the skill
        set.

        A skill fails by raising. Its segment is reported as failed with one sentence: that of a
        `SkillFailed` as it is, that of another exception with its type. The execution goes on with
        the new plan. A value that the plan cannot use fails the same way: the value of a condition
        that is not of the declared kind, or `<` between a text and a number.

        A running skill is not interrupted when the request is canceled (`cancel` from another
        thread) or ends with an error, or when a newer epoch replaces the plan. A skill with the
        keyword `execution` (`def g(name, *, execution)`) can look at `execution.canceled`. When the
        skill returns, nothing more of the old plan is executed, and the value is not reported.
        `execute` sets no time limit for a skill. The server ends the request with NO_ANSWER when a
        report is overdue by its `answer_timeout_s`.

        Args:
            skills: a mapping of skills' names to callables, or an object with methods of these
                names; every skill of the skill set needs one.
            on_progress: called with each event, in the same thread.
            absent: skills that the robot does not have: a segment that calls one fails.
            otherwise: called with the `SkillCall` of skills without a callable, and of
                statements that name no skill.
            skill_set: the skill set or its file; None: the server is asked for it.
            timeout_s: longest wait for each segment, and for the end of the request.
            log: keeps the calls, so that a restarted robot makes none a second time. It is empty
                when the plan has ended, and keeps the calls after a `ServerLost`.

        Raises:
            ServerLost: the server died, stopped or was restarted: its plan is lost, unless
                `PlanClient.resume` finds it.
            PlanTimeout: the next segment, or the end, did not come in time.
            PlanClientError: a skill has no callable (then nothing was executed), segments were
                read before, the request ended with an error or was canceled, or the client was
                closed; its `calls` were executed.
            BaseException: KeyboardInterrupt and the like from a skill, any exception from
                `on_progress`. The request is canceled then, as after a PlanTimeout.
        """
        from timely_llm.robots.client.plan_run import PlanRun, check_execution, fitting

        check_execution(on_progress, absent, skill_set, timeout_s, log)
        self._begin_execution()
        try:
            known = fitting(skill_set, self.skill_set, self._sender.skill_set)
            run = PlanRun(self, known, skills, absent, otherwise, on_progress, timeout_s, log)
        except BaseException:
            self._end_execution(None)
            raise
        try:
            return run.run()
        finally:
            self._end_execution(False)

    def segments(self, timeout_s: float = 30.0) -> Iterator[Segment]:
        """Yield the segments in order, each once, until the plan is complete.

        For programs with an executor of their own; `execute` is one. A segment's `calls` are all
        skills that its text names, also those inside conditions and loops. So do not make each of
        them once: docs/executing_plans.md has the rules.

        After `failed`, the segments of a new plan follow, with a higher `epoch`. After a segment
        with `blocking`, the next one comes only when the segment was reported as `finished`.

        Args:
            timeout_s: longest wait for each.

        Raises:
            PlanTimeout: the next segment did not come in time.
            PlanClientError: the plan ended with an error, is executed by `execute`, or the
                client was closed.
        """
        return self._segments_of(seconds("timeout_s", timeout_s, error=PlanClientError))

    def _segments_of(self, timeout_s: float) -> Iterator[Segment]:
        while True:
            segment = self._take(timeout_s)
            if segment is None:
                return
            yield segment

    def started(self, segment: Segment) -> None:
        """Report that the robot began to execute a segment."""
        kind("segment", segment, Segment)
        self._began_s[segment.epoch, segment.index] = self.seconds()
        self._report(ReportState.STARTED, segment)

    def finished(self, segment: Segment, duration_s: float | None = None, value: str = "") -> None:
        """Report that a segment was executed, or had to be skipped.

        Args:
            segment: the segment.
            duration_s: seconds that it took; 0: it was skipped, or no robot executes it; None: the
                seconds since it was started, or else since it came.
            value: what its blocking skill returned.
        """
        self._report(ReportState.FINISHED, segment, duration_s, value)

    def failed(self, segment: Segment, reason: str, duration_s: float | None = None) -> None:
        """Report that a segment could not be executed; the server makes a new plan.

        From another thread, this also ends what `execute` is executing, for a new plan.

        Args:
            segment: the segment; all segments after it are void.
            reason: one sentence for the model.
            duration_s: as in `finished`.
        """
        self._report(ReportState.FAILED, segment, duration_s, reason)

    def result(self, timeout_s: float = 60.0) -> PlanResult:
        """Return how the request ended, also if it ended with an error.

        If no robot executes the plan, the request ends when the plan is complete: unread segments
        are reported as skipped, so that the server makes the next ones at once. If `execute` runs
        in another thread, if another thread reads segments or reports, or if all segments were read
        and some reported, the request ends with the execution.

        Raises:
            PlanTimeout: the request did not end in time.
            PlanClientError: no robot executes the plan and it waits for a skill's value, or the
                client was closed before. In the first case the request stays open: its segments
                can still be read or executed.
        """
        end_s = time.monotonic() + seconds("timeout_s", timeout_s, error=PlanClientError)
        try:
            if self._is_left_alone():
                self._let_it_be_made(end_s)
            return self.await_result(max(end_s - time.monotonic(), 0.0))
        except PlanTimeout:
            what = f"request {self.request_id!r} did not end within {timeout_s:g} s"
            raise PlanTimeout(what) from None

    def _begin_execution(self) -> None:
        with self._changed:
            if self._executing is not None:
                when = "is being" if self._executing else "was"
                raise PlanClientError(f"request {self.request_id!r} {when} executed already")
            if self._next or self._reported:
                raise PlanClientError(
                    f"segments of request {self.request_id!r} were read or reported already: a"
                    " segment is executed once"
                )
            self._executing = True

    def _end_execution(self, state: bool | None) -> None:
        with self._changed:
            self._executing = state
            self._changed.notify_all()

    # Reading.

    def _follow(self, epoch: int, asked: bool = False) -> bool:
        """Go over to a newer epoch; return whether segments of `epoch` are read."""
        begun = self.epoch
        followed = super()._follow(epoch, asked)
        if self.epoch > begun:
            self._next, self._read = 0, ""
        return followed

    def _take(self, timeout_s: float) -> Segment | None:
        """Wait for the next segment and return it; None: the plan is complete."""
        with self._changed:
            if self._executing is not None:
                raise PlanClientError(
                    f"segments of request {self.request_id!r} are taken by execute()"
                )
            self._users.add(threading.current_thread())
            self._wait(self._has_news, timeout_s, "sent no segment")
            if self._returned or self._last_was_read():
                return None
            segment = self._segments.get(self._next)
            error = self._result is not None and self._result.error_code is not ErrorCode.NONE
            if segment is None or error:
                segment = self._recover()
            if segment is not None:
                self._next += 1
                self._read += segment.text
                self._began_s.setdefault((segment.epoch, segment.index), self.seconds())
            return segment

    def _has_news(self) -> bool:
        news = self._next in self._segments or self._last_was_read()
        return news or self._returned or self.done

    def _last_was_read(self) -> bool:
        last = self._segments.get(self._next - 1)
        return last is not None and last.final

    def _recover(self) -> Segment | None:
        """Return all lost segments as one, from the whole plan in the result."""
        result = self._ended()
        if result.error_code is not ErrorCode.NONE:
            raise failed(result)
        if result.epoch <= self._epochs.failed:
            raise too_late()
        if not self._epochs.caused(result.epoch):
            raise foreign(result)
        self._follow(result.epoch)
        if not result.plan.startswith(self._read):
            raise PlanClientError("the plan in the result does not begin with the segments read")
        lost = result.plan[len(self._read) :]
        if not lost.strip(CLOSERS):
            return None
        segment = Segment(
            self.request_id, self.agent, self._next, lost, calls_of(lost), 0.0, True, self.epoch
        )
        self._segments[self._next] = segment
        return segment

    # Results of plans that no robot executes.

    def _is_left_alone(self) -> bool:
        """Return whether no program executes the plan, as far as this client can know."""
        with self._changed:
            if self.done or self._returned or self._canceling or self._elsewhere:
                return False
            if self._executing is not None:
                return False
            here = threading.current_thread()
            if any(user is not here and user.is_alive() for user in self._users):
                return False
            return not (self._last_was_read() and self._reported)

    def _let_it_be_made(self, end_s: float) -> None:
        """Report unread segments as skipped, until the request ends or a program executes it.

        Raises:
            PlanTimeout: the request did not end in time.
            PlanClientError: the plan waits for a value.
        """
        if self._last_was_read():
            self.returned()
            return
        place = (-1, 0)
        while (segment := self._unread_after(place, end_s)) is not None:
            place = segment.epoch, segment.index + 1
            if (segment.epoch, segment.index) in self._finished:
                continue
            if segment.blocking and not segment.final:
                name = next(call.name for call in segment.calls if call.blocking)
                raise PlanClientError(
                    f"the plan waits for the value of {name}(): execute it with execute(), or read"
                    " segments() and report the value"
                )
            if segment.index >= self._next:
                self.send_report(
                    self._report_of(ReportState.FINISHED, segment.epoch, segment.index)
                )

    def _unread_after(self, place: tuple[int, int], end_s: float) -> Segment | None:
        """Wait for the segment at `place`, or the first unread one of a newer epoch; return it.

        None: the plan is not left alone any more.
        """

        def found() -> Segment | None:
            index = place[1] if place[0] == self.epoch else max(self._next - 1, 0)
            return self._segments.get(index)

        def has_news() -> bool:
            return found() is not None or not self._is_left_alone()

        with self._changed:
            self._wait(has_news, max(end_s - time.monotonic(), 0.0), "did not end")
            return found() if self._is_left_alone() else None

    # Reports.

    def _report(
        self, state: ReportState, segment: Segment, duration_s: float | None = 0.0, value: str = ""
    ) -> None:
        kind("segment", segment, Segment)
        text("reason" if state is ReportState.FAILED else "value", value)
        if duration_s is not None:
            duration_s = seconds("duration_s", duration_s)
        with self._changed:
            self._reported = True
            self._users.add(threading.current_thread())
            if state is ReportState.FINISHED:
                self._finished.add((segment.epoch, segment.index))
        if duration_s is None:
            now = self.seconds()
            began_s = self._began_s.get((segment.epoch, segment.index), now)
            duration_s = max(now - began_s, SHORTEST_S)
        self.send_report(self._report_of(state, segment.epoch, segment.index, duration_s, value))


def calls_of(text: str) -> tuple[SkillCall, ...]:
    """Return the skill calls named in the text of a plan, their arguments as texts."""
    return tuple(
        SkillCall(name, tuple(word.strip("'\"") for word in ARGUMENT.findall(words)))
        for name, words in CALL.findall(text)
    )
