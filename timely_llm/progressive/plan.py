"""One plan with help: the edge begins it, a cloud names its steps, and the edge plans them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from uuid import uuid4

from timely_llm.cloud.prompts import plan_sketch
from timely_llm.core.generation import PlanGeneration, PlanTally
from timely_llm.core.request import (
    MAX_TASK_CHARACTERS,
    ChatMessage,
    ErrorCode,
    ExecutionReport,
    PlanRequest,
    PlanResult,
    Rejected,
    ReportState,
    RequestMode,
)
from timely_llm.core.segment import Segment
from timely_llm.progressive.ensemble.dry_run import MakeWorld, best_plan
from timely_llm.progressive.grounding import grounded
from timely_llm.progressive.helped import ENDS, LATE, HelpedRequest, Outlets
from timely_llm.progressive.settings import HelpSettings
from timely_llm.serving.delivery import account, correct
from timely_llm.serving.pool import result_of
from timely_llm.skills.skill_set import SkillSet

SOON_S = 0.1
"""The first segment of a plan for which a robot waits is due after this time, seconds."""
SAMPLED = 0.7
"""Least temperature of candidates after the first: at 0 all would be the same."""


def guided_task(task: str, steps: Sequence[str]) -> str:
    """Return a task with the steps in which it is to be done."""
    return "\n".join([task, *(f"{number}. {step}" for number, step in enumerate(steps, 1))])


def steps_question(task: str, skill_set: SkillSet) -> tuple[ChatMessage, ...]:
    """Return the chat that asks a cloud for the steps of a task."""
    skills = skill_set.skills
    said = "\n".join(f"{name}: {one.description}" for name, one in skills.items())
    return plan_sketch(task, said)


@dataclass(eq=False)
class _EdgePlan:
    """A plan that the edge makes.

    Attributes:
        request_id: at the edge.
        segments: of its newest epoch.
        passed: those of them that the robot has.
        epoch: its newest epoch.
        complete: its text is complete.
        over: its request has ended at the edge.
    """

    request_id: str
    segments: list[Segment] = field(default_factory=list)
    passed: int = 0
    epoch: int = 0
    complete: bool = False
    over: bool = False

    @property
    def waits(self) -> bool:
        """Whether the robot does not have all of its segments."""
        return self.passed < len(self.segments)

    @property
    def stands(self) -> bool:
        """Whether the plan waits for a value that the robot has to report."""
        blocked = bool(self.segments) and self.segments[-1].blocking
        return self.complete or self.over or blocked

    def take(self, segment: Segment) -> bool:
        """Take a segment; return whether the robot has it, since the last one may come twice."""
        if segment.epoch > self.epoch:
            self.segments.clear()
            self.passed, self.epoch, self.complete = 0, segment.epoch, False
        if segment.epoch == self.epoch:
            self.segments[segment.index :] = [segment]
            self.complete = self.complete or segment.final
        return segment.index < self.passed


class HelpedPlan(HelpedRequest[PlanRequest, Segment, PlanResult]):
    """One plan of which a cloud writes the steps.

    The robot gets the first segment of the edge's own plan at once, and each further one when it
    needs it. When the steps are there, the edge plans the task anew with them: no word of the cloud
    reaches a robot but through the grammar and the checks of its skill set. What both plans have in
    common stands. From the first difference on the new plan takes the place of what the robot has
    not begun, as a new epoch.

    Args:
        request: of the client.
        outlets: take what is to be done.
        settings: of the help.
        skill_set: what the robot can do.
        now: seconds on the clock of all calls.
        make_world: makes the worlds of a dry run; None: the edge makes one plan of the steps.
    """

    def __init__(
        self,
        request: PlanRequest,
        outlets: Outlets,
        settings: HelpSettings,
        skill_set: SkillSet,
        now: float,
        make_world: MakeWorld | None = None,
    ) -> None:
        question = steps_question(request.task, skill_set)
        super().__init__(request, outlets, settings, question, now)
        self._skill_set = skill_set
        self._make_world = make_world
        self._record = PlanGeneration(
            self.key, request, now, 0, 0, epoch=request.epoch, tally=PlanTally(task=request.task)
        )
        self._opening = _EdgePlan(self.key, epoch=request.epoch)
        self._guided: _EdgePlan | None = None
        self._candidates: list[_EdgePlan] = []  # with the steps, until a dry run has decided
        self._leads = False  # whether the plan with the steps has taken over from the opening
        self._origins: list[tuple[_EdgePlan, Segment]] = []  # of the segments of this epoch
        self._reports: dict[int, list[ExecutionReport]] = {}  # about these segments
        self._compared = 0.0  # segments of the opening that the new plan has, too; inf: all

    @property
    def opening(self) -> PlanRequest:
        """The request that begins at the edge, without a mode."""
        return replace(self.request, mode=RequestMode.DIRECT)

    @property
    def segments(self) -> Sequence[Segment]:
        """What was delivered in the newest epoch."""
        return self._record.segments

    @property
    def made_so_far(self) -> tuple[int, str]:
        """Nothing: a dispatcher asks for a plan's segments."""
        return 0, ""

    @property
    def delivered(self) -> int:
        """Segments of the newest epoch that were delivered."""
        return len(self._record.segments)

    def due_in_s(self, now: float) -> float:
        """Return the seconds until the next segment is needed."""
        return self._record.due_s - now

    def wake_s(self, now: float) -> float:
        """Return when `tick` is needed at the latest."""
        if self.result is not None:
            return math.inf
        again_s = self._again_s if not self._with_steps and self._has_steps else math.inf
        if self._leads or not self._opening.waits:
            return again_s
        return min(again_s, self._record.due_s - self._settings.plan_lead_s)

    def tick(self, now: float) -> None:
        """Pass on what the robot needs now; plan with the steps if they are there."""
        if self.result is None:
            self._record.overrun(now)
            self._pass_on(now)

    def made(self, what: Segment, now: float) -> None:
        """Take a segment of one of the two plans."""
        plan = self._plan(what.request_id)
        if self.result is not None or plan is None:
            return
        self._refused_s = math.inf
        if plan in self._candidates:
            plan.take(what)
            self._decide(now)
            return
        if plan is self._guided and not self._leads:
            self._take_over()
            if not self._leads:
                return
        if what.epoch > plan.epoch:
            if plan is self._opening:
                self._drop_guided("a segment failed before the cloud's help came")
            self._begin_epoch(now)
        if plan.take(what):
            self._repeat(plan, what)
        self._pass_on(now)

    def piece_ended(self, result: PlanResult, now: float) -> None:
        """Take the end of one of the two requests."""
        tally = self._record.tally
        tally.prompt_tokens += result.prompt_tokens
        tally.generated_tokens += result.generated_tokens
        tally.recomputed_tokens += result.recomputed_tokens
        plan = self._plan(result.request_id)
        if plan is None or self.result is not None:
            return
        plan.over = True
        if plan in self._candidates and result.error_code not in ENDS:
            if result.error_code is not ErrorCode.NONE:
                self._leave_out_candidate(plan, result.error_msg)
            self._decide(now)
        elif result.error_code is ErrorCode.NONE:
            self._pass_on(now)
        elif plan is self._guided and not self._leads and result.error_code not in ENDS:
            self._leave_out(result.error_msg)
            self._drop_guided(self._problem)
            self._pass_on(now)
        else:
            self.cancel(result.error_code, result.error_msg, now)

    def refused(self, request_id: str, error: Rejected, now: float) -> None:
        """Take the refusal of the new plan: it is asked for again, but not for ever."""
        plan = self._plan(request_id)
        if self.result is not None or plan is None:
            return
        if plan in self._candidates and len(self._candidates) > 1:
            self._candidates.remove(plan)
            self._decide(now)
        elif self._tries_again(error, now):
            self._guided = None
            self._candidates.clear()

    def report(self, report: ExecutionReport, now: float) -> None:
        """Take a robot's report about a segment, and pass it on as one about the edge's."""
        known = report.epoch == self._record.epoch and report.index < len(self._origins)
        if report.state is ReportState.ALIVE or not known:
            self._outlets.pass_report(replace(report, state=ReportState.ALIVE, request_id=""))
            return
        correct(self._record, report, now)
        self._reports.setdefault(report.index, []).append(report)
        self._forward(report)
        if report.state is ReportState.RETURNED:
            self.cancel(ErrorCode.NONE, "", now)

    def cancel(self, code: ErrorCode, reason: str, now: float) -> None:
        """End what is open, and the plan."""
        for plan in (self._opening, *self._with_steps):
            if not plan.over:
                self._outlets.end_part(plan.request_id)
        self._end(result_of(self._record, code, reason), self._leads, now)

    # The sketch.

    def _sketched(self, now: float) -> None:
        task, skills = self.request.task, self._skill_set.skills.values()
        if not all(grounded(part.text, task, skills) for part in self.parts):
            self.parts.clear()
            self._stop_asking("the cloud names a step that the task does not mention", now)
            self._pass_on(now)

    def _sketch_over(self, broke: bool, now: float) -> None:
        if len(self.parts) == 1 and not self._problem:
            self._problem = "the cloud names one step only: the edge's own plan goes on"
        self._pass_on(now)

    @property
    def _has_steps(self) -> bool:
        """Whether the steps are there, and the edge's own plan has neither failed nor ended."""
        return (
            len(self.parts) > 1
            and not self._cloud_open
            and not self._problem
            and bool(self._origins)
            and self._record.epoch == self.request.epoch
            and not self._record.segments[-1].final
        )

    @property
    def _with_steps(self) -> list[_EdgePlan]:
        """The plans with the steps: candidates, or the one that was taken."""
        return [self._guided] if self._guided is not None else self._candidates

    def _ask_for_guided(self, now: float) -> None:
        """Give the task with its steps to the edge, beside the opening."""
        task = guided_task(self.request.task, [part.text for part in self.parts])
        if len(task) > MAX_TASK_CHARACTERS:
            self._problem = "the task with the cloud's steps is too long"
            return
        several = self._make_world is not None and self._outlets.has_room()
        count = self._settings.plan_candidates if several else 1
        plans = [self._ask_for_plan(task, number, now) for number in range(count)]
        if count == 1:
            self._guided = plans[0]
        else:
            self._candidates = plans

    def _ask_for_plan(self, task: str, number: int, now: float) -> _EdgePlan:
        """Ask the edge for a plan with the steps; each one after the first is sampled."""
        request = self.request
        due_in_s = max(self._record.due_s - now, SOON_S)
        child = replace(
            request,
            request_id=f"{self.key[:80]}~{uuid4().hex[:12]}",
            mode=RequestMode.DIRECT,
            task=task,
            epoch=0,
            dispatcher="",
            temperature=max(request.temperature, SAMPLED) if number else request.temperature,
            seed=request.seed + number,
            time_utility=replace(request.time_utility, ert_s=due_in_s),
        )
        self._outlets.ask_edge(self.key, child)
        return _EdgePlan(child.request_id)

    def _decide(self, now: float) -> None:
        """Take the best candidate once each has come as far as it can, and end the others."""
        if not all(plan.stands for plan in self._candidates):
            return
        if self._candidates:
            assert self._make_world is not None
            texts = ["".join(one.text for one in plan.segments) for plan in self._candidates]
            steps = [part.text for part in self.parts]
            place = best_plan(texts, steps, self._skill_set, self._make_world)
            self._guided = self._candidates.pop(place)
            for plan in self._candidates:
                if not plan.over:
                    self._outlets.end_part(plan.request_id)
            self._candidates.clear()
            self._take_over()
        self._pass_on(now)

    def _leave_out_candidate(self, plan: _EdgePlan, why: str) -> None:
        self._candidates.remove(plan)
        if not self._candidates:
            self._leave_out(why)

    def _take_over(self) -> None:
        """Let the plan with the steps lead, unless the robot has all of the opening."""
        if self._record.segments[-1].final:
            self._drop_guided(LATE)
            return
        self._leads = True
        if not self._opening.over:
            self._outlets.end_part(self.key)

    def _drop_guided(self, problem: str) -> None:
        """Do without the plan with the steps."""
        if self._with_steps:
            for plan in self._with_steps:
                if not plan.over:
                    self._outlets.end_part(plan.request_id)
            self._guided, self._problem = None, problem
            self._candidates.clear()

    # Segments.

    def _plan(self, request_id: str) -> _EdgePlan | None:
        """Return the plan of a request, if it counts."""
        for plan in self._with_steps:
            if plan.request_id == request_id:
                return plan
        return self._opening if request_id == self.key and not self._leads else None

    def _pass_on(self, now: float) -> None:
        """Give the robot what it may have, in order; end what is through."""
        if not self._with_steps and self._has_steps and now >= self._again_s:
            self._ask_for_guided(now)
        plan = self._guided if self._leads and self._guided is not None else self._opening
        while plan.waits and (self._leads or self._needs_more(now)):
            plan.passed += 1
            segment = plan.segments[plan.passed - 1]
            if not self._leads or not self._stands(plan, segment, now):
                self._deliver(plan, segment, now)
        if plan.over and not plan.waits:
            if not self._leads:
                self._drop_guided(self._problem)
            self._end(result_of(self._record, ErrorCode.NONE, ""), self._leads, now)

    def _needs_more(self, now: float) -> bool:
        """Return whether the robot gets the next segment of the opening now."""
        hopes = self._cloud_open or bool(self._with_steps)
        if not hopes or not self._origins:
            return True
        return now >= self._record.due_s - self._settings.plan_lead_s

    def _deliver(self, plan: _EdgePlan, segment: Segment, now: float) -> None:
        record = self._record
        made = replace(segment, request_id=self.key, index=len(record.segments), epoch=record.epoch)
        self._origins.append((plan, segment))
        account(record, made, now)
        self._outlets.deliver(made)

    def _repeat(self, plan: _EdgePlan, segment: Segment) -> None:
        """Pass on a segment once more: it is final, and may have closing brackets now."""
        for index, (origin, former) in enumerate(self._origins):
            if origin is plan and former.index == segment.index:
                self._origins[index] = plan, segment
                made = replace(self._record.segments[index], text=segment.text, final=segment.final)
                self._record.segments[index] = made
                self._outlets.deliver(made)

    def _stands(self, plan: _EdgePlan, segment: Segment, now: float) -> bool:
        """Return whether the robot has a segment of the new plan already, from the opening.

        If it has another one in its place, what it has not begun is taken back: a new epoch.
        """
        if self._compared >= len(self._origins):
            self._compared = math.inf  # from here on the robot has segments of the new plan alone
            return False
        place = int(self._compared)
        same = self._origins[place][1].text.strip() == segment.text.strip()
        last = len(self._origins) - 1
        if same and (not segment.final or place == last or place < self._begun(now)):
            self._compared += 1
            self._origins[place] = plan, segment
            for report in self._reports.get(place, ()):
                self._forward(report)
            if segment.final:  # what the robot has begun beyond it cannot be taken back
                self._mark_last()
            return True
        kept = self._origins[self._begun(now) : place]
        self._begin_epoch(now)
        for origin, former in kept:
            self._deliver(origin, former, now)
        return False

    def _mark_last(self) -> None:
        """Pass on the newest segment once more, marked final."""
        segments = self._record.segments
        segments[-1] = replace(segments[-1], final=True)
        self._outlets.deliver(segments[-1])

    def _begun(self, now: float) -> int:
        """Return how many of the delivered segments the robot has begun, as far as is known."""
        record = self._record
        if self.request.closed_loop:
            return record.started + 1
        begins_s, begun = record.robot_free_s, len(record.segments)
        for segment in reversed(record.segments):
            begins_s -= segment.predicted_s
            if begins_s <= now:
                return begun
            begun -= 1
        return begun

    def _begin_epoch(self, now: float) -> None:
        """Make void what the robot has not executed."""
        record = self._record
        record.epoch += 1
        record.started = record.finished = -1
        record.asked_s = now
        record.segments.clear()
        self._origins.clear()
        self._reports.clear()
        self._compared = math.inf

    def _forward(self, report: ExecutionReport) -> None:
        """Pass a report on as one about the edge's segment."""
        plan, segment = self._origins[report.index]
        self._outlets.pass_report(
            replace(report, request_id=plan.request_id, index=segment.index, epoch=segment.epoch)
        )
