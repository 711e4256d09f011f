"""Robots and people around a serving loop: what they ask, do and report, on the loop's clock."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from itertools import count

from timely_llm.core.clock import Clock
from timely_llm.core.errors import TimelyError
from timely_llm.core.events.codec import is_written
from timely_llm.core.events.log import EventLog
from timely_llm.core.events.run_event import RunEvent
from timely_llm.core.events.schema import ChunkEvent, EndEvent, SegmentEvent
from timely_llm.core.request import (
    MAX_TOKENS,
    ErrorCode,
    ExecutionReport,
    PlanRequest,
    ReportState,
    Request,
    StreamRequest,
    StreamResult,
)
from timely_llm.core.segment import Segment
from timely_llm.experiments.contract import ReportProgress
from timely_llm.experiments.virtual.outcome import (
    ConversationOutcome,
    ExecutedSegment,
    JobOutcome,
    Run,
)
from timely_llm.experiments.virtual.workload import JobInstance
from timely_llm.serving.loop import Loop
from timely_llm.serving.publisher import Stats
from timely_llm.traces.model import Conversation
from timely_llm.traces.streams import request_of

_WORDS = (*4 * (" so", " fa", "r", " so"), " so", " fa", "r", " so.")
"""The texts of tokens, again and again: three words in four tokens, sentences of 15 words."""


def answer(tokens: int) -> list[str]:
    """Return an answer as its tokens, without the one that ends it."""
    return [_WORDS[place % len(_WORDS)] for place in range(tokens - 1)]


def stream_request(conversation: Conversation, max_tokens: int) -> StreamRequest:
    """Return what a person asks: a prompt of as many tokens as the conversation's.

    Args:
        conversation: its prompt has at least one token.
        max_tokens: most tokens of an answer, where the conversation says nothing.
    """
    most = min(conversation.max_tokens or max_tokens, MAX_TOKENS)
    return replace(request_of(replace(conversation, text="", output_tokens=1)), max_tokens=most)


@dataclass(eq=False)
class SimulatedPerson:
    """One person with one question: remembers when the words came."""

    conversation: Conversation
    times_s: list[float] = field(default_factory=list)
    result: StreamResult | None = None

    def receive(self, received_s: float) -> None:
        """Record that a token came."""
        self.times_s.append(received_s)

    @property
    def outcome(self) -> ConversationOutcome:
        """What came of it."""
        result = self.result
        finished = result is not None and result.error_code == 0
        stalled_s = result.stalled_s if result else 0.0
        cut = result is not None and result.cut
        refused = result is not None and result.error_code is ErrorCode.BUSY
        return ConversationOutcome(
            self.conversation, finished, tuple(self.times_s), stalled_s, cut, refused
        )


_TICK_S = 1e-9  # what adding up steps may lose


class SimulationError(TimelyError):
    """A run cannot come to its end."""


@dataclass(eq=False)
class SimulatedRobot:
    """One robot with one plan: executes segments in order."""

    work: JobInstance
    request: PlanRequest
    free_s: float
    finished: bool = False
    canceled: bool = False
    executed: list[ExecutedSegment] = field(default_factory=list)

    def take(self, received_s: float, seconds: float) -> ExecutedSegment:
        """Execute a segment for a time, seconds, as soon as the ones before are done."""
        start_s = max(received_s, self.free_s)
        self.free_s = start_s + seconds
        self.executed.append(ExecutedSegment(received_s, start_s, self.free_s))
        return self.executed[-1]

    @property
    def outcome(self) -> JobOutcome:
        """What it got."""
        return JobOutcome(self.work, self.finished, tuple(self.executed))


class SimulatedClients:
    """Robots and people who call a loop and take its events; real time differs by the clock alone.

    Args:
        clock: the loop's.
        seconds: how long a robot really takes for a segment.
        network_s: seconds of a message, each way.
        reports: robots say when they start and finish segments.
        event_log: takes the loop's events.

    Attributes:
        stats: counts of the loop's events.
    """

    def __init__(
        self,
        clock: Clock,
        seconds: Callable[[SimulatedRobot, Segment], float],
        network_s: float,
        reports: bool,
        event_log: EventLog | None = None,
    ) -> None:
        self._clock = clock
        self._seconds = seconds
        self._network_s = network_s
        self._reports = reports
        self._event_log = event_log
        self.stats = Stats()
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._order = count()
        self._ended = 0
        self.robots: dict[str, SimulatedRobot] = {}
        self.people: dict[str, SimulatedPerson] = {}
        self.loop: Loop

    def enter(self, work: JobInstance, request: PlanRequest) -> None:
        """Let a robot ask for a plan when its time comes."""
        self.robots[work.id] = SimulatedRobot(work, request, work.arrival_s)
        self._ask(request, work.arrival_s)

    def enter_person(self, conversation: Conversation, request: StreamRequest) -> None:
        """Let a person ask when the time comes."""
        self.people[request.request_id] = SimulatedPerson(conversation)
        self._ask(request, conversation.arrival_s)

    def run(self, loop: Loop, rest: Callable[[float], None], progress: ReportProgress) -> Run:
        """Turn the loop until all requests have ended.

        Args:
            loop: the clients take its events.
            rest: lets time pass until a moment of the clock.
            progress: called with requests ended and all requests.

        Raises:
            SimulationError: requests are left that the policy never serves.
        """
        self.loop = loop
        begin_s, told, busy_s = self._clock.now(), 0, 0.0
        while told < self._asked:
            self._happen()
            self._take(loop.take_events())
            before_s = self._clock.now()
            turn = loop.turn()
            busy_s += self._clock.now() - before_s
            self._take(turn.events)
            if self._ended > told:
                told = self._ended
                progress(told, self._asked)
            if told < self._asked and not turn.stepped:
                next_s = min(turn.wake_s, self._events[0][0] if self._events else math.inf)
                if next_s == math.inf:
                    left = self._asked - self._ended
                    raise SimulationError(f"{left} requests are left, and nothing will ever happen")
                rest(next_s)
        arrivals_s = [robot.work.arrival_s for robot in self.robots.values()]
        arrivals_s += [talker.conversation.arrival_s for talker in self.people.values()]
        first_s = min(arrivals_s, default=begin_s)
        return Run(
            tuple(robot.outcome for robot in self.robots.values()), self.stats.steps, busy_s,
            self._clock.now() - first_s, self.stats.generated_tokens,
            tuple(talker.outcome for talker in self.people.values()),
            self.stats.evictions, self.stats.recomputed_tokens, self.stats.loaded_tokens,
        )  # fmt: skip

    def plan_ended(self, robot: SimulatedRobot, at_s: float) -> None:
        """Do nothing more. In a subclass the robot may ask for its next plan with `enter`."""

    @property
    def _asked(self) -> int:
        """Requests that entered."""
        return len(self.robots) + len(self.people)

    def _take(self, events: Iterable[RunEvent]) -> None:
        """Let robots and people take what happened."""
        for event in events:
            self.stats.take(event)
            match event:
                case SegmentEvent(segment=Segment() as segment):
                    self._execute(segment, event.t + self._network_s)
                case ChunkEvent():
                    self.people[event.id].receive(event.t + self._network_s)
                case EndEvent(result=StreamResult() as result):
                    self._ended += 1
                    self.people[event.id].result = result
                case EndEvent():
                    self._ended += 1
                    robot = self.robots[event.id]
                    robot.finished = event.code == "none" or robot.canceled
                    self.plan_ended(robot, event.t)
            if self._event_log is not None and is_written(event):
                self._event_log.write(event)

    def _execute(self, segment: Segment, received_s: float) -> None:
        """Send a segment to its robot; one that comes a second time says nothing new."""
        robot, place = self.robots[segment.request_id], self._place(segment)
        if robot.canceled or place < len(robot.executed):
            return
        seconds = self._seconds(robot, segment)
        robot.canceled = place == robot.work.canceled_in
        done = robot.take(received_s, seconds / 2.0 if robot.canceled else seconds)
        if self._reports:
            self._report(segment, ReportState.STARTED, done.start_s)
        if robot.canceled:
            self._at(done.end_s + self._network_s, lambda: self._cancel(robot))
        elif self._reports:
            self._report(segment, ReportState.FINISHED, done.end_s, done.end_s - done.start_s)

    def _cancel(self, robot: SimulatedRobot) -> None:
        """Cancel a robot's plan, unless all of it was generated."""
        self.loop.cancel(robot.request.request_id, ErrorCode.CANCELED, "the robot cancels it")

    def _place(self, segment: Segment) -> int:
        """Return the place of a segment among those that its robot executes."""
        return segment.index

    def _ask(self, request: Request, at_s: float) -> None:
        arrival_s = at_s + self._network_s
        self._at(arrival_s, lambda: self.loop.admit(request, arrival_s))

    def _report(self, segment: Segment, state: ReportState, at_s: float, took_s: float = 0) -> None:
        report = ExecutionReport(
            segment.request_id, segment.agent, state, segment.index, took_s, epoch=segment.epoch
        )
        self._tell(report, at_s + self._network_s)

    def _tell(self, report: ExecutionReport, at_s: float) -> None:
        """Let a report arrive at a time."""
        self._at(at_s, lambda: self.loop.report(report))

    def _at(self, time_s: float, happen: Callable[[], None]) -> None:
        heapq.heappush(self._events, (time_s, next(self._order), happen))

    def _happen(self) -> None:
        """Do everything that is due by now, also in the middle of the last step."""
        now = self._clock.now() + _TICK_S
        while self._events and self._events[0][0] <= now:
            heapq.heappop(self._events)[2]()
