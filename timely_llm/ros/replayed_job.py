"""One job of a trace being replayed: a simulated robot executes its plan and tells what it does."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from timely_llm.core.errors import PlanError
from timely_llm.core.request import ErrorCode, ExecutionReport, PlanRequest, PlanResult, ReportState
from timely_llm.core.segment import Segment, SkillCall, Value
from timely_llm.experiments.outcome import Executed, Outcome
from timely_llm.experiments.workload import Work
from timely_llm.robots.execution import Happening, PlanRun
from timely_llm.robots.world import World
from timely_llm.ros.conversions import value_text
from timely_llm.ros.replayed_request import LAST_S, ReplayedRequest
from timely_llm.skills.skill_set import SkillSet


class Obliging(World):
    """A world in which everything that a plan names is there: a trace does not say what was."""

    def sees(self, name: str) -> bool:
        """Return that the object is in view."""
        return True


class MeasuredRun(PlanRun):
    """Executes a plan in the times that a trace measured, as far as it has any.

    They go to segments in order, but none to the last of several, as in experiments
    (`experiments/workload.py`). The first call of a segment takes all of its time.

    Args:
        skill_set: what the robot can do, and how long it takes where nothing was measured.
        number: seed of durations that were not measured.
        asked_s: when the plan was asked for.
        measured_s: seconds of each segment.
    """

    def __init__(
        self, skill_set: SkillSet, number: int, asked_s: float, measured_s: Sequence[float]
    ) -> None:
        super().__init__(skill_set, Obliging(), np.random.default_rng(number), asked_s)
        self._measured_s = measured_s
        self._last = 0
        self._timed: set[int] = set()

    def receive(self, index: int, text: str, final: bool, now: float) -> None:
        """Take a segment; one that came before changes nothing."""
        if final:
            self._last = index
        super().receive(index, text, final, now)

    def _make(self, call: SkillCall) -> tuple[float, Value]:
        seconds, value = super()._make(call)
        index = max(self._began_s)
        if index >= len(self._measured_s) or 0 < index == self._last:
            return seconds, value
        first = index not in self._timed
        self._timed.add(index)
        return (self._measured_s[index] if first else 0.0), value


class ReplayedJob(ReplayedRequest[PlanRequest, PlanResult]):
    """A job as it is asked and executed; times on the monotonic clock.

    Args:
        number: its place in the replay.
        work: the job, due at `work.arrival_s` after the replay's start.
        request: what is asked.
        skill_set: what its robot can do.
        report: sends a robot's word to the server.
    """

    def __init__(
        self,
        number: int,
        work: Work,
        request: PlanRequest,
        skill_set: SkillSet,
        report: Callable[[ExecutionReport], None],
    ) -> None:
        super().__init__(work.job, request)
        self.work = work
        self._number = number
        self._skill_set = skill_set
        self._report = report
        self._epoch = 0
        self._make_up_s = math.inf
        self._failed = self._said_returned = False
        self._received_s: dict[tuple[int, int], float] = {}
        self._executed: dict[tuple[int, int], Executed] = {}
        self._run = self._new_run()

    @property
    def wake_s(self) -> float:
        """When the running skill ends, or nothing more is waited for; infinite if neither is."""
        return math.inf if self._failed else min(self._run.next_wake_s, self._make_up_s)

    @property
    def finished(self) -> bool:
        """Whether it ended without an error, and its plan was executed to the end."""
        complete = self.result is not None and self.result.error_code is ErrorCode.NONE
        return complete and not self._failed and self._run.ended

    @property
    def done(self) -> bool:
        """Whether nothing more will happen."""
        if self.lost or self.result is None:
            return self.lost
        return self.finished or self._failed or self.result.error_code is not ErrorCode.NONE

    def outcome(self, start_s: float, end_s: float) -> Outcome:
        """Return what its robot got, in seconds after `start_s`.

        Args:
            start_s: of the replay.
            end_s: of the replay; a segment that is still being executed counts up to there.
        """
        executed = tuple(
            Executed(
                *(min(at_s, end_s) - start_s for at_s in (one.received_s, one.start_s, one.end_s))
            )
            for one in self._executed.values()
        )
        arrival_s = self.asked_s - start_s
        return Outcome(replace(self.work, arrival_s=arrival_s), self.finished, executed)

    # What the server says.

    def offer(self, segment: Segment) -> None:
        """Take a segment, wherever it comes from; one that is known changes nothing."""
        if self.done or not self._follow(segment.epoch):
            return
        now = time.monotonic()
        self._received_s.setdefault((segment.epoch, segment.index), now)
        self._execute(
            segment.index,
            lambda: self._run.receive(segment.index, segment.text, segment.final, now),
        )
        self._make_up(now)

    def finish(self, result: PlanResult) -> None:
        """Take the result; only the first one counts."""
        if self.result is not None:
            return
        self.result = result
        if result.error_code is ErrorCode.NONE and self._follow(result.epoch):
            now = time.monotonic()
            self._make_up_s = now + LAST_S
            self._make_up(now)

    def tick(self, now: float) -> None:
        """Go on after a skill whose end has come, or without segments that did not come."""
        if now >= self._run.next_wake_s and not self._failed:
            self._run.wake(now)
            self._tell()
        self._make_up(now)

    def _make_up(self, now: float) -> None:
        """Make up for segments that got lost on the way by the whole plan.

        The result may have overtaken them.
        """
        if self.result is None or self._make_up_s == math.inf:
            return
        if len(self._received_s) >= self.result.segments or now >= self._make_up_s:
            self._make_up_s = math.inf
            plan = self.result.plan
            self._execute(self._run.segments, lambda: self._run.complete(plan, now))

    def _follow(self, epoch: int) -> bool:
        """Go over to a newer epoch; return whether `epoch` is what is being executed."""
        if epoch > self._epoch:
            self._epoch, self._failed, self._run = epoch, False, self._new_run()
        return epoch == self._epoch and not self._failed

    def _new_run(self) -> MeasuredRun:
        measured_s = [skill.seconds for skill in self.work.job.skill_times]
        return MeasuredRun(self._skill_set, self._number, time.monotonic(), measured_s)

    def _execute(self, index: int, work: Callable[[], None]) -> None:
        """Execute something of a plan; what this robot cannot read, it reports as failed."""
        try:
            work()
        except PlanError as error:
            self._failed = True
            self._send(ReportState.FAILED, index, value=str(error))
        else:
            self._tell()

    def _tell(self) -> None:
        """Report what happened."""
        for happening in self._run.drain():
            self._take(happening)
        if self._run.returned and self.result is None and not self._said_returned:
            self._said_returned = True
            self._send(ReportState.RETURNED)

    def _take(self, happening: Happening) -> None:
        index, at_s = happening.index, happening.at_s
        place = self._epoch, index
        if happening.kind == "started":
            received_s = self._received_s.get(place, at_s)
            self._executed[place] = Executed(received_s, at_s, math.inf)
            self._send(ReportState.STARTED, index)
        elif happening.kind == "finished":
            self._executed[place] = replace(self._executed[place], end_s=at_s)
            value = value_text(happening.value)
            self._send(ReportState.FINISHED, index, happening.duration_s, value)

    def _send(
        self, state: ReportState, index: int = 0, duration_s: float = 0.0, value: str = ""
    ) -> None:
        request_id = self.request.request_id
        self._report(
            ExecutionReport(request_id, self.agent, state, index, duration_s, value, self._epoch)
        )
