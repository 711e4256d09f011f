"""One plan that was asked for, as its client sees it: no ROS, usable from any thread."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from timely_llm.core.request import ErrorCode, ExecutionReport, PlanResult, ReportState
from timely_llm.core.segment import Segment, SkillCall
from timely_llm.ros.pending import Canceler, Pending, PlanClientError, PlanTimeout

if TYPE_CHECKING:
    from timely_llm.ros.execution import Executed, Progress
    from timely_llm.skills.skill_set import SkillSet

CALL = re.compile(r"([A-Za-z_]\w*)\(((?:'[^']*'|\"[^\"]*\"|[^()'\"])*)\)")
ARGUMENT = re.compile(r"'[^']*'|\"[^\"]*\"|[^,\s]+")
CLOSERS = " \n;}"
"""A plan's last marks may come after its last segment."""


class Postman(Canceler, Protocol):
    """What a task asks of its client."""

    def report(self, report: ExecutionReport) -> None:
        """Send a robot's word to the server."""
        ...

    def skill_set(self, name: str) -> SkillSet:
        """Return a skill set that the server has registered.

        Raises:
            PlanClientError: it has none of this name, or did not answer in time.
        """
        ...


class PlanTask(Pending[PlanResult]):
    """A plan in the making; made by `PlanClient.submit`.

    `execute` runs it with a robot's skills. `result` alone waits for the text of a plan that
    nobody executes. `segments` is for those who write an executor of their own.

    Args:
        request_id: what the server calls it.
        agent: who asked.
        postman: how reports get to the server.
        skill_set: name of the skill set of its plan.
        elsewhere: another program executes the plan and reports.
    """

    def __init__(
        self,
        request_id: str,
        agent: str,
        postman: Postman,
        skill_set: str = "",
        elsewhere: bool = False,
    ) -> None:
        super().__init__(request_id, agent, postman)
        self.skill_set = skill_set
        self._postman = postman
        self._elsewhere = elsewhere
        self._epoch = self._next = 0
        self._void = -1  # the newest epoch in which a segment failed
        self._segments: dict[int, Segment] = {}
        self._began_s: dict[tuple[int, int], float] = {}
        self._read = ""
        self._returned = self._reported = False
        self._executing: bool | None = None  # None: `execute` was not called yet
        self._users: set[threading.Thread] = set()  # who reads segments or reports
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
    ) -> Executed:
        """Execute the plan as it comes, and report; return what was done when it has ended.

        Conditions, loops, values and returns are those of the plan; docs/executing_plans.md has the
        rules. Skills are called one at a time, in the thread that calls `execute`, with the
        plan's arguments by position: int, float or str, within the bounds of the skill set. A skill
        fails by raising: the segment is reported as failed with one sentence (that of a
        `SkillFailed` as it is, of others with their type), and the execution goes on with the
        new plan. A value that the plan cannot use fails the same way: a condition's that is not of
        the kind the skill set declares, or `<` between a text and a number.

        When the request is canceled (`cancel` from another thread), ends with an error, or a
        newer epoch replaces the plan, a running skill is not interrupted. One that takes the
        keyword `execution` (`def g(name, *, execution)`) can look at `execution.canceled`. When
        it returns, nothing more of the old plan is executed, and its value is reported nowhere.
        There is no time limit for a skill here; the server ends the request with NO_ANSWER
        when a report is overdue by its `answer_timeout_s`.

        Args:
            skills: a mapping of skills' names to callables, or an object with methods of these
                names; every skill of the skill set needs one.
            on_progress: called with everything that happens, in the same thread.
            absent: skills that the robot does not have: a segment that calls one fails.
            otherwise: called with the `SkillCall` of skills without a callable, and of
                statements that name no skill.
            skill_set: the skill set or its file; None: the server is asked for it.
            timeout_s: how long to wait for each segment, and for the end of the request.

        Raises:
            PlanTimeout: the next segment, or the end, did not come in time.
            PlanClientError: a skill has no callable (then nothing was executed), segments were
                read before, the request ended with an error or was canceled, or the client was
                closed; `calls` tells what was executed.
            BaseException: KeyboardInterrupt and the like from a skill, anything from
                `on_progress`. The request is canceled then, as after a PlanTimeout.
        """
        from timely_llm.ros.plan_run import PlanRun, fitting

        self._begin_execution()
        try:
            known = fitting(skill_set, self.skill_set, self._postman.skill_set)
            run = PlanRun(self, known, skills, absent, otherwise, on_progress, timeout_s)
        except BaseException:
            self._end_execution(None)
            raise
        try:
            return run.run()
        finally:
            self._end_execution(False)

    def segments(self, timeout_s: float = 30.0) -> Iterator[Segment]:
        """Yield the segments in order, each once, until the plan is complete.

        For those who write an executor; `execute` is one. A segment's `calls` are all the skills
        that its text names. They stand inside conditions and loops, so making each of them once is
        not what the plan says: docs/executing_plans.md has the rules.

        After `failed` the segments of a new plan follow, whose `epoch` is higher. After a segment
        whose `blocking` is true the next one comes only when it was reported as `finished`.

        Args:
            timeout_s: how long to wait for each.

        Raises:
            PlanTimeout: the next segment did not come in time.
            PlanClientError: the plan ended with an error, is executed by `execute`, or the
                client was closed.
        """
        while True:
            segment = self._take(timeout_s)
            if segment is None:
                return
            yield segment

    def started(self, segment: Segment) -> None:
        """Report that the robot began to execute a segment."""
        self._began_s[segment.epoch, segment.index] = time.monotonic()
        self._report(ReportState.STARTED, segment)

    def finished(self, segment: Segment, duration_s: float | None = None, value: str = "") -> None:
        """Report that a segment was executed, or had to be skipped.

        Args:
            segment: which.
            duration_s: how long it took; 0: it was skipped, or nobody executes; None: since it was
                started, or else since it came.
            value: what its blocking skill returned.
        """
        self._report(ReportState.FINISHED, segment, duration_s, value)

    def failed(self, segment: Segment, reason: str, duration_s: float | None = None) -> None:
        """Report that a segment could not be executed; a new plan is asked for.

        From another thread it also ends what `execute` is executing, for a new plan.

        Args:
            segment: which; what came after it is void.
            reason: one sentence that the model is told.
            duration_s: as in `finished`.
        """
        self._report(ReportState.FAILED, segment, duration_s, reason)

    def returned(self) -> None:
        """Report that the plan returned: no further segment is needed."""
        with self._changed:
            self._returned = True
            self._changed.notify_all()
            state = ReportState.RETURNED
            report = ExecutionReport(self.request_id, self.agent, state, epoch=self._epoch)
        self._postman.report(report)

    def result(self, timeout_s: float = 60.0) -> PlanResult:
        """Return how the request ended, also if it ended with an error.

        If nobody executes the plan, that is when it is complete: what was not read is reported as
        skipped, so that it is made at once. If `execute` runs in another thread, if another thread
        reads segments or reports, or if all were read and some reported, it is the end of the
        execution.

        Raises:
            PlanTimeout: it did not end in time.
            PlanClientError: nobody executes the plan and it waits for a skill's value, or the
                client was closed before. In the first case the request stays open: its segments
                can still be read or executed.
        """
        end_s = time.monotonic() + timeout_s
        try:
            if self._is_left_alone():
                self._let_it_be_made(end_s)
            return self.await_result(max(end_s - time.monotonic(), 0.0))
        except PlanTimeout:
            what = f"request {self.request_id!r} did not end within {timeout_s:g} s"
            raise PlanTimeout(what) from None

    # What the client's thread tells.

    def offer(self, segment: Segment) -> None:
        """Take a segment, wherever it comes from; one that is known changes nothing."""
        with self._changed:
            if segment.epoch < self._epoch or segment.epoch <= self._void:
                return
            self._go_to(segment.epoch)
            if segment.index not in self._segments or segment.final:
                self._segments[segment.index] = segment
            self._changed.notify_all()

    # What the execution asks.

    @property
    def epoch(self) -> int:
        """The newest epoch of which a segment came."""
        return self._epoch

    @property
    def ending(self) -> PlanResult | None:
        """How the request ended, if it has."""
        return self._result

    def known(self, epoch: int, index: int) -> Segment | None:
        """Return a segment that has come and is not void."""
        with self._changed:
            return self._segments.get(index) if epoch == self._epoch > self._void else None

    def stopped(self) -> PlanClientError | None:
        """Return why nothing more of the request is to be executed, whatever the epoch."""
        result = self._result
        if result is not None and result.error_code is not ErrorCode.NONE:
            return PlanClientError(result.error_msg, result.error_code)
        if self._canceling:
            return PlanClientError("the request was canceled", ErrorCode.CANCELED)
        if self._closed and result is None:
            return PlanClientError(self._closed)
        if self._returned:
            return PlanClientError("the plan was reported as returned elsewhere")
        return None

    def void(self, epoch: int) -> str:
        """Return why nothing more of an epoch is to be executed; empty: that is not so."""
        with self._changed:
            stopped = self.stopped()
            if stopped is not None:
                return str(stopped)
            replaced = epoch < self._epoch or epoch <= self._void
            return "a new plan takes the place of this one" if replaced else ""

    def wait_void(self, epoch: int, timeout_s: float) -> bool:
        """Wait until an epoch is void; return whether it is."""
        with self._changed:
            return self._changed.wait_for(lambda: bool(self.void(epoch)), max(timeout_s, 0.0))

    def wait_for(self, condition: Callable[[], bool], timeout_s: float, what: str) -> None:
        """Wait until a condition holds that depends on what comes.

        Raises:
            PlanTimeout: it does not in time.
        """
        with self._changed:
            self._wait(condition, timeout_s, what)

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

    def _go_to(self, epoch: int) -> None:
        if epoch > self._epoch:
            self._epoch, self._next, self._read = epoch, 0, ""
            self._segments.clear()

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
                self._began_s.setdefault((segment.epoch, segment.index), time.monotonic())
            return segment

    def _has_news(self) -> bool:
        news = self._next in self._segments or self._last_was_read()
        return news or self._returned or self.done

    def _last_was_read(self) -> bool:
        last = self._segments.get(self._next - 1)
        return last is not None and last.final

    def _recover(self) -> Segment | None:
        """Return what got lost on the way as one segment, from the whole plan in the result."""
        result = self._ended()
        if result.error_code is not ErrorCode.NONE:
            raise PlanClientError(result.error_msg, result.error_code)
        if result.epoch <= self._void:
            raise too_late()
        self._go_to(result.epoch)
        if not result.plan.startswith(self._read):
            raise PlanClientError("the plan in the result does not begin with the segments read")
        lost = result.plan[len(self._read) :]
        if not lost.strip(CLOSERS):
            return None
        segment = Segment(
            self.request_id, self.agent, self._next, lost, calls_of(lost), 0.0, True, self._epoch
        )
        self._segments[self._next] = segment
        return segment

    # Results of plans that nobody executes.

    def _is_left_alone(self) -> bool:
        """Return whether nobody executes the plan, as far as this client can know."""
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
        """Report what was not read as skipped, until the request ends or somebody executes it.

        Raises:
            PlanTimeout: it did not end in time.
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
                self.tell(ReportState.FINISHED, segment.epoch, segment.index)

    def _unread_after(self, place: tuple[int, int], end_s: float) -> Segment | None:
        """Wait for the segment at `place`, or the first of a newer epoch that may be waited for.

        None: the plan is not left alone any more.
        """

        def found() -> Segment | None:
            index = place[1] if place[0] == self._epoch else max(self._next - 1, 0)
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
        with self._changed:
            self._reported = True
            self._users.add(threading.current_thread())
            if state is ReportState.FINISHED:
                self._finished.add((segment.epoch, segment.index))
        if duration_s is None:
            now = time.monotonic()
            duration_s = now - self._began_s.get((segment.epoch, segment.index), now)
        self.tell(state, segment.epoch, segment.index, duration_s, value)

    def tell(
        self, state: ReportState, epoch: int, index: int, duration_s: float = 0.0, value: str = ""
    ) -> None:
        """Send a report; with a failure its epoch is void."""
        if state is ReportState.FAILED:
            with self._changed:
                self._void = max(self._void, epoch)
                if epoch == self._epoch:
                    self._segments.clear()
                self._changed.notify_all()
        self._postman.report(
            ExecutionReport(self.request_id, self.agent, state, index, duration_s, value, epoch)
        )


def too_late(reason: str = "") -> PlanClientError:
    """Return the error of who failed, for a reason, when nobody makes a new plan any more."""
    why = f" ({reason})" if reason else ""
    return PlanClientError(
        f"a segment failed{why} after its request had ended: submit a new task",
        ErrorCode.EXECUTION_FAILED,
    )


def calls_of(text: str) -> tuple[SkillCall, ...]:
    """Return the skill calls named in the text of a plan, their arguments as texts."""
    return tuple(
        SkillCall(name, tuple(word.strip("'\"") for word in ARGUMENT.findall(words)))
        for name, words in CALL.findall(text)
    )
