"""A server's side of one plan, which delivers in any order, twice, late or not at all."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

from timely_llm.core.request import ErrorCode, ExecutionReport, PlanResult, ReportState
from timely_llm.core.segment import Segment
from timely_llm.robots.client.plan_task import PlanTask
from timely_llm.skills.minispec.checker import MiniSpecChecker, read_on
from timely_llm.skills.skill_set import SkillSet


def segments_of(skill_set: SkillSet, text: str, epoch: int = 0) -> list[Segment]:
    """Return a plan cut where the server's own stop checker cuts it.

    If the last one is complete before the end of the text is known, it is there twice: as it comes
    first, and as it comes in the end.
    """
    checker = MiniSpecChecker(skill_set)
    pieces = read_on(checker, text)
    last, tail = checker.finish()
    pieces += [last] if last else []
    made = [
        Segment("r", "me", index, piece.text, piece.calls, piece.predicted_s, False, epoch)
        for index, piece in enumerate(pieces)
    ]
    final = replace(made[-1], text=made[-1].text + tail, final=True)
    return [*made, final] if last is None and not checker.done else [*made[:-1], final]


class ScriptedServer:
    """Answers the reports of one task, in the reporting thread.

    A segment that is made comes at the latest when the robot has nothing else to do. No segment
    after a blocking one comes before its value.

    Args:
        skill_set: the plans'.
        plans: the text of each epoch's plan.
        rng: the order of things; None: in order, everything once.
        closed_loop: false: the plan's result comes with its last segment; some may be lost then.
    """

    def __init__(
        self,
        skill_set: SkillSet,
        plans: Sequence[str],
        rng: random.Random | None = None,
        closed_loop: bool = True,
    ) -> None:
        self._skill_set = skill_set
        self._plans = [segments_of(skill_set, text, n) for n, text in enumerate(plans)]
        self._rng = rng
        self._closed_loop = closed_loop
        self.reports: list[ExecutionReport] = []
        self.canceled = 0
        self.values: list[str] = []
        self.task = PlanTask("r", "me", self, skill_set.name)
        self._epoch = 0
        self._finished = -1
        self._begin(0)

    def start(self) -> PlanTask:
        """Deliver the first segments; return the task."""
        self._pump(0)
        return self.task

    # What a task's client does.

    def report(self, report: ExecutionReport) -> None:
        self.reports.append(report)
        if report.epoch != self._epoch or self.task.done:
            return
        if report.state is ReportState.RETURNED:
            self._end(ErrorCode.NONE)
        elif report.state is ReportState.FAILED:
            self._replan(report)
        elif report.state is ReportState.FINISHED:
            self._take_finish(report)
        elif self._maybe(0.3):
            self._pump(report.index)

    def cancel(self, request_id: str) -> None:
        self.canceled += 1
        self._end(ErrorCode.CANCELED, "canceled by a client")

    def skill_set(self, name: str) -> SkillSet:
        assert name == self._skill_set.name
        return self._skill_set

    def disturb(self) -> None:
        """Let something come while a skill runs."""
        if self._maybe(0.2):
            self._pump(self._finished + 1)

    # The script.

    def _maybe(self, share: float) -> bool:
        return self._rng is not None and self._rng.random() < share

    def _begin(self, epoch: int) -> None:
        self._epoch, self._finished = epoch, -1
        *before, last = self._plans[epoch]
        twice = bool(before) and before[-1].index == last.index
        self._early = before.pop() if twice else None
        if self._early is not None and not (self._closed_loop and self._maybe(0.5)):
            self._early = None
        self._plan = [*before, last]
        self._answered = -1  # the last blocking segment with a value
        self._sent: set[int] = set()

    @property
    def _most(self) -> int:
        """Up to which segment the plan is made."""
        for segment in self._plan:
            if segment.blocking and segment.index > self._answered and not segment.final:
                return segment.index
        return self._plan[-1].index

    def _pump(self, needed: int) -> None:
        """Deliver some of the segments that are made, `needed` among them."""
        most = self._most
        coming = [index for index in range(most + 1) if index not in self._sent]
        if self._rng is not None:
            keep = self._rng.random()
            coming = [i for i in coming if i <= needed or self._rng.random() < keep]
            coming += [i for i in self._sent if self._rng.random() < 0.1]
            self._rng.shuffle(coming)
        for index in coming:
            self._deliver(index)
        if not self._closed_loop and most == self._plan[-1].index:
            self._end(ErrorCode.NONE)

    def _deliver(self, index: int) -> None:
        whole = self._most == self._plan[-1].index
        lost = whole and not self._closed_loop and self._maybe(0.3)
        self._sent.add(index)
        segment = self._plan[index]
        if segment.final and self._early is not None:
            segment = self._early
        if not lost:
            self.task.offer(segment)
        if self._epoch and self._maybe(0.1):
            old = self._plans[self._epoch - 1]
            self.task.offer(old[index % len(old)])

    def _take_finish(self, report: ExecutionReport) -> None:
        if report.index <= self._finished:
            return
        assert report.index == self._finished + 1, "segments are finished one after the other"
        self._finished = report.index
        segment = self._plan[report.index]
        if segment.blocking:
            self.values.append(report.value)
            self._answered = report.index
        if not segment.final:
            self._pump(report.index + 1)
            return
        if self._early is not None and not self._maybe(0.3):
            self.task.offer(self._plan[-1])
        self._end(ErrorCode.NONE)

    def _replan(self, report: ExecutionReport) -> None:
        if self._epoch + 1 == len(self._plans):
            words = f"segment {report.index} failed: {report.value}"
            self._end(ErrorCode.EXECUTION_FAILED, words)
            return
        self._begin(self._epoch + 1)
        self._pump(0)

    def _end(self, code: ErrorCode, message: str = "") -> None:
        text = "".join(segment.text for segment in self._plan)
        self.task.finish(PlanResult("r", "me", code, message, text, epoch=self._epoch))
