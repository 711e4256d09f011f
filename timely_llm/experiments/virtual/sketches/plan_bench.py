"""Robots, an edge that plans, and a cloud that helps or plans itself, on one virtual clock.

The edge is the serving loop itself with a simulated engine, the help is that of a live server, and
the texts of all models are recorded. Robots take as long for a segment as the skill set predicts.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import count

from timely_llm.cloud.contract import CloudEnd, CloudEvent, CloudQuestion, CloudWords
from timely_llm.cloud.simulated import CloudPath, SimulatedCloud
from timely_llm.core.clock import VirtualClock
from timely_llm.core.errors import PlanError
from timely_llm.core.events.run_event import RunEvent
from timely_llm.core.events.schema import EndEvent, SegmentEvent
from timely_llm.core.request import (
    ChatMessage,
    ErrorCode,
    ExecutionReport,
    PlanRequest,
    PlanResult,
    Rejected,
    Request,
    RequestMode,
    Result,
    StreamChunk,
)
from timely_llm.core.segment import Segment
from timely_llm.engines.simulated import Profile, SimulatedEngine
from timely_llm.experiments.virtual.clients import SimulationError
from timely_llm.experiments.virtual.simulation import LIMITS, SimulationSettings
from timely_llm.experiments.virtual.sketches.recorded_plans import HeldOutPlan, tokens_of
from timely_llm.policies.registry import DEFAULT_POLICY, make_policy
from timely_llm.progressive.grounding import grounded
from timely_llm.progressive.plan import HelpedPlan, guided_task, steps_question
from timely_llm.progressive.settings import HelpSettings
from timely_llm.progressive.sketch import SketchReader
from timely_llm.robots.plan_epochs import PlanEpochs
from timely_llm.serving.loop import Loop
from timely_llm.skills.checkers import make_checker
from timely_llm.skills.skill_set import SkillSet

_GUIDED = "~"
"""In the ids of requests for a plan of a task with its steps, after the id of the task's own."""


@dataclass(frozen=True)
class AskedPlan:
    """A task of one robot.

    Attributes:
        key: unique in its run.
        at_s: when the robot asks.
        plan: the task, and what the models answer.
    """

    key: str
    at_s: float
    plan: HeldOutPlan


@dataclass
class _Executed:
    """A segment that a robot executes."""

    text: str
    start_s: float
    end_s: float


@dataclass(eq=False)
class PlanningRobot:
    """One robot with one task.

    Attributes:
        asked: the task.
        ended: its request has ended.
        valid: its plan ended well.
        helped: steps of a cloud are in its plan.
        cloud_tokens, edge_tokens: made for it.
    """

    asked: AskedPlan
    ended: bool = False
    valid: bool = False
    helped: bool = False
    cloud_tokens: int = 0
    edge_tokens: int = 0
    _epochs: PlanEpochs = field(default_factory=lambda: PlanEpochs(lambda: True))  # helped plans
    _before: int = 0  # segments of older epochs
    _executed: list[_Executed] = field(default_factory=list)

    def take(self, segment: Segment, now: float) -> None:
        """Execute a segment after those before it; a new epoch makes void what has not begun."""
        begun = self._epochs.newest
        if not self._epochs.follow(segment.epoch, segment.request_id):
            return
        if segment.epoch > begun:
            self._executed = [one for one in self._executed if one.start_s <= now]
            self._before = len(self._executed)
        place = self._before + segment.index
        if place < len(self._executed):
            self._executed[place].text = segment.text  # closing brackets were added
            return
        start_s = max(now, self._free_s)
        self._executed.append(_Executed(segment.text, start_s, start_s + segment.predicted_s))

    @property
    def text(self) -> str:
        """The plan that it executes."""
        return "".join(one.text for one in self._executed)

    @property
    def exact(self) -> bool:
        """Whether it executes the one right plan."""
        return self.text == self.asked.plan.right

    @property
    def response_s(self) -> float:
        """From its question to its first action, seconds; NaN: it has none."""
        return self._executed[0].start_s - self.asked.at_s if self._executed else math.nan

    @property
    def done_s(self) -> float:
        """From its question to the end of its last action, seconds; NaN: it has none."""
        return self._free_s - self.asked.at_s if self._executed else math.nan

    @property
    def waiting_s(self) -> float:
        """Seconds of that time in which it does nothing."""
        return self.done_s - sum(one.end_s - one.start_s for one in self._executed)

    @property
    def _free_s(self) -> float:
        return self._executed[-1].end_s if self._executed else self.asked.at_s


@dataclass(frozen=True)
class PlanDevices:
    """What plans are made with.

    Attributes:
        skill_sets: by name.
        edge: step times of the edge's model.
        cloud: step times of the cloud's model.
        rows: most questions of a step of the cloud.
        path: between edge and cloud.
    """

    skill_sets: Mapping[str, SkillSet]
    edge: Profile
    cloud: Profile
    rows: int
    path: CloudPath


PlanWay = Callable[["PlanBench", PlanningRobot], None]
"""How a robot gets its plan: called when it asks."""


class PlanBench:
    """Runs tasks.

    It has the outlets of requests with help.

    Args:
        asked: the tasks.
        way: how each gets its plan.
        devices: edge and cloud.
        settings: of the help.
    """

    def __init__(
        self, asked: Sequence[AskedPlan], way: PlanWay, devices: PlanDevices, settings: HelpSettings
    ) -> None:
        self.devices = devices
        self.settings = settings
        self.robots = {one.key: PlanningRobot(one) for one in asked}
        self._way = way
        self._left = len(asked)
        self._clock = VirtualClock(0.0)
        self._cloud = SimulatedCloud(devices.cloud, self._cloud_says, devices.rows, devices.path)
        self._said: dict[str, str] = {}  # of the cloud, by key
        self._heard: dict[str, Callable[[CloudEvent], None]] = {}
        self._helped: dict[str, HelpedPlan] = {}
        self._actions: deque[Callable[[], object]] = deque()
        self._timers: list[tuple[float, int, Callable[[], None]]] = []
        order = count()
        for robot in self.robots.values():
            begin: Callable[[], None] = partial(self._way, self, robot)
            heapq.heappush(self._timers, (robot.asked.at_s, next(order), begin))
        engine = SimulatedEngine(devices.edge, self._edge_says, self._clock, LIMITS)
        step_time = SimulationSettings(profile=devices.edge).step_time()
        self._loop = Loop(engine, make_policy(DEFAULT_POLICY), self._clock, step_time)
        for skill_set in devices.skill_sets.values():
            self._loop.register(skill_set)

    def run(self) -> list[PlanningRobot]:
        """Return the robots once all requests have ended.

        Raises:
            SimulationError: requests are left that never end.
        """
        while True:
            self._happen()
            self._take(self._loop.take_events())
            if not self._left and not self._actions:
                return list(self.robots.values())
            turn = self._loop.turn()
            self._take(turn.events)
            if not turn.stepped and not self._actions:
                next_s = min(turn.wake_s, self._next_s)
                if next_s == math.inf:
                    raise SimulationError(f"{self._left} tasks are left that nothing will end")
                self._clock.advance(max(next_s - self._clock.now(), 0.0))

    @property
    def _next_s(self) -> float:
        """When robots, the cloud or requests with help have something to do."""
        now = self._clock.now()
        waits = [one.wake_s(now) for one in self._helped.values()]
        first_s = self._timers[0][0] if self._timers else math.inf
        return min(first_s, self._cloud.next_s(), *waits)

    def _happen(self) -> None:
        """Do everything that is due."""
        now = self._clock.now()
        while self._timers and self._timers[0][0] <= now:
            heapq.heappop(self._timers)[2]()
        for event in self._cloud.poll(now):
            self._heard[event.key](event)
        for helped in list(self._helped.values()):
            if now >= helped.wake_s(now):
                helped.tick(now)
        while self._actions:
            self._actions.popleft()()

    def _take(self, events: Iterable[RunEvent]) -> None:
        """Let requests with help and robots take what the edge made."""
        now = self._clock.now()
        for event in events:
            match event:
                case SegmentEvent(segment=Segment() as segment):
                    robot = self.robots[_parent(event.id)]
                    if (helped := self._helped.get(robot.asked.key)) is not None:
                        helped.made(segment, now)
                    elif not robot.ended:
                        robot.take(segment, now)
                case EndEvent(result=PlanResult() as result):
                    robot = self.robots[_parent(event.id)]
                    robot.edge_tokens += result.generated_tokens
                    if (helped := self._helped.get(robot.asked.key)) is not None:
                        helped.piece_ended(result, now)
                    elif not robot.ended:
                        self.end(robot, result.error_code is ErrorCode.NONE)
                case _:
                    pass

    # What ways do.

    def request(self, robot: PlanningRobot) -> PlanRequest:
        """Return a robot's request; it asks for help."""
        asked = robot.asked
        return PlanRequest(
            asked.key, asked.key, asked.plan.robot, asked.plan.task, mode=RequestMode.PROGRESSIVE
        )

    @property
    def serving(self) -> int:
        """Requests at the edge."""
        return len(self._loop.generations)

    def plan_at_edge(self, robot: PlanningRobot, steps: Sequence[str] = ()) -> None:
        """Let the edge plan a task alone, or with its steps."""
        asked = robot.asked
        key = f"{asked.key}{_GUIDED}steps" if steps else asked.key
        task = guided_task(asked.plan.task, steps)
        self._loop.admit(PlanRequest(key, asked.key, asked.plan.robot, task))

    def help(self, robot: PlanningRobot) -> None:
        """Let the edge begin, and the cloud write the steps meanwhile."""
        request, now = self.request(robot), self._clock.now()
        skill_set = self.devices.skill_sets[request.skill_set]
        helped = HelpedPlan(request, self, self.settings, skill_set, now)
        self._helped[request.request_id] = helped
        self._loop.admit(helped.opening)
        self.ask(helped.question, robot.asked.plan.sketch, partial(self._advise, helped))

    def sketch_first(self, robot: PlanningRobot) -> None:
        """Let the cloud write the steps, and the edge plan when they are there."""
        plan, reader = robot.asked.plan, SketchReader()
        skill_set = self.devices.skill_sets[plan.robot]
        parts: list[str] = []

        def hear(event: CloudEvent) -> None:
            if isinstance(event, CloudWords):
                robot.cloud_tokens += 1
                parts.extend(part.text for part in reader.feed(event.text))
                return
            parts.extend(part.text for part in reader.end())
            can = skill_set.skills.values()
            good = len(parts) > 1 and all(grounded(part, plan.task, can) for part in parts)
            robot.helped = good
            self.plan_at_edge(robot, parts if good else ())

        settings = self.settings
        question = CloudQuestion(
            robot.asked.key, steps_question(plan.task, skill_set), settings.sketch_tokens,
            settings.timeout_s,
        )  # fmt: skip
        self.ask(question, plan.sketch, hear)

    def plan_in_cloud(self, robot: PlanningRobot) -> None:
        """Let the cloud write the plan; the robot gets each segment as it comes."""
        plan = robot.asked.plan
        skill_set = self.devices.skill_sets[plan.robot]
        checker, place = make_checker(skill_set), count()

        def hear(event: CloudEvent) -> None:
            if robot.ended:
                return
            if isinstance(event, CloudEnd):
                self.end(robot, checker.done)
                return
            robot.cloud_tokens += 1
            try:
                for piece in checker.feed(event.text):
                    segment = Segment(
                        robot.asked.key, robot.asked.key, next(place), piece.text, piece.calls,
                        piece.predicted_s,
                    )  # fmt: skip
                    robot.take(segment, self._clock.now())
            except PlanError:
                self.forget(robot.asked.key)
                self.end(robot, False)

        settings = self.settings
        chat = (ChatMessage("system", skill_set.prompt_text()), ChatMessage("user", plan.task))
        question = CloudQuestion(robot.asked.key, chat, settings.sketch_tokens, settings.timeout_s)
        self.ask(question, plan.large, hear)

    def ask(self, question: CloudQuestion, answer: str, hear: Callable[[CloudEvent], None]) -> None:
        """Ask the cloud something to which the answer is known."""
        self._said[question.key], self._heard[question.key] = answer, hear
        self._cloud.ask(question, self._clock.now())

    def end(self, robot: PlanningRobot, valid: bool) -> None:
        """End a robot's request."""
        robot.ended, robot.valid = True, valid
        self._left -= 1

    def _advise(self, helped: HelpedPlan, event: CloudEvent) -> None:
        """Let a request with help take what the cloud says."""
        now = self._clock.now()
        if isinstance(event, CloudWords):
            helped.cloud_words(event.text, now)
        else:
            helped.cloud_ended(event, now)

    # What models say.

    def _cloud_says(self, question: CloudQuestion) -> list[str]:
        return tokens_of(self._said[question.key])

    def _edge_says(self, key: str, prompt: str) -> list[str]:
        robot = self.robots.get(_parent(key))
        if robot is None:
            return []  # a prompt that is kept
        plan = robot.asked.plan
        return tokens_of(plan.guided if _GUIDED in key else plan.small)

    # The outlets of requests with help.

    def ask_edge(self, parent: str, request: Request) -> None:
        """Submit the request of a plan with steps to the edge."""

        def submit() -> None:
            try:
                self._loop.admit(request)
            except Rejected as error:
                if (helped := self._helped.get(parent)) is not None:
                    helped.refused(request.request_id, error, self._clock.now())

        self._actions.append(submit)

    def has_room(self) -> bool:
        """Return whether the edge has room for more than one plan of a task."""
        return self.serving < self.settings.auto_requests

    def end_part(self, request_id: str) -> None:
        """End a request at the edge."""
        self._actions.append(partial(self._loop.cancel, request_id, ErrorCode.CANCELED, "given up"))

    def pass_report(self, report: ExecutionReport) -> None:
        """Pass a report on: these robots send none."""

    def forget(self, key: str) -> None:
        """Give up a question to the cloud."""
        self._actions.append(partial(self._cloud.cancel, key))

    def deliver(self, made: StreamChunk | Segment) -> None:
        """Give a segment to its robot."""
        if isinstance(made, Segment):
            self.robots[made.request_id].take(made, self._clock.now())

    def finish(self, result: Result) -> None:
        """End a request with help."""
        robot = self.robots[result.request_id]
        del self._helped[result.request_id]
        robot.helped = result.mode_used is RequestMode.PROGRESSIVE
        robot.cloud_tokens = result.cloud_tokens
        self.end(robot, result.error_code is ErrorCode.NONE)


def _parent(key: str) -> str:
    """Return the id of the robot's request to which one at the edge belongs."""
    return key.partition(_GUIDED)[0]
