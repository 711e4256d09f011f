"""Robots and people around a serving loop: what they ask, do and report, on the loop's clock."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count

from timely_llm.core.clock import Clock
from timely_llm.core.errors import TimelyError
from timely_llm.core.request import ExecutionReport, PlanRequest, ReportState, Request, Result
from timely_llm.core.segment import Segment
from timely_llm.core.stream import StreamChunk, StreamRequest, StreamResult
from timely_llm.engines.contract import StepResult
from timely_llm.experiments.outcome import Executed, Outcome, Run
from timely_llm.experiments.talkers import Talker
from timely_llm.experiments.workload import Work
from timely_llm.serving.loop import Loop
from timely_llm.traces.model import Conversation

Progress = Callable[[int, int], None]
_TICK_S = 1e-9  # what adding up steps may lose


class SimulationError(TimelyError):
    """A run cannot come to its end."""


@dataclass(eq=False)
class Robot:
    """One robot with one plan: executes segments in order."""

    work: Work
    request: PlanRequest
    free_s: float
    finished: bool = False
    executed: list[Executed] = field(default_factory=list)

    def take(self, received_s: float, seconds: float) -> Executed:
        """Execute a segment for so long, as soon as the ones before are done."""
        start_s = max(received_s, self.free_s)
        self.free_s = start_s + seconds
        self.executed.append(Executed(received_s, start_s, self.free_s))
        return self.executed[-1]

    @property
    def outcome(self) -> Outcome:
        """What it got."""
        return Outcome(self.work, self.finished, tuple(self.executed))


class Stage:
    """The sink of a loop, and those who call it: nothing but the clock is different in real time.

    Args:
        clock: the loop's.
        seconds: how long a robot really takes for a segment.
        network_s: seconds of a message, each way.
        reports: robots say when they start and finish segments.
    """

    def __init__(
        self,
        clock: Clock,
        seconds: Callable[[Robot, Segment], float],
        network_s: float,
        reports: bool,
    ) -> None:
        self._clock = clock
        self._seconds = seconds
        self._network_s = network_s
        self._reports = reports
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._order = count()
        self._ended = 0
        self.robots: dict[str, Robot] = {}
        self.talkers: dict[str, Talker] = {}
        self.loop: Loop

    def enter(self, work: Work, request: PlanRequest) -> None:
        """Let a robot ask for a plan when its time comes."""
        self.robots[work.id] = Robot(work, request, work.arrival_s)
        self._ask(request, work.arrival_s)

    def talk(self, conversation: Conversation, request: StreamRequest) -> None:
        """Let a person ask when the time comes."""
        self.talkers[request.request_id] = Talker(conversation)
        self._ask(request, conversation.arrival_s)

    def run(self, loop: Loop, rest: Callable[[float], None], progress: Progress) -> Run:
        """Turn the loop until all requests have ended.

        Args:
            loop: this is its sink.
            rest: lets time pass until a moment of the clock.
            progress: called with requests ended and all requests.

        Raises:
            SimulationError: requests are left that the policy never serves.
        """
        self.loop = loop
        begin_s, told, busy_s = self._clock.now(), 0, 0.0
        total = len(self.robots) + len(self.talkers)
        while told < total:
            self._happen()
            before_s = self._clock.now()
            turn = loop.turn()
            busy_s += self._clock.now() - before_s
            if self._ended > told:
                told = self._ended
                progress(told, total)
            if told < total and not turn.stepped:
                next_s = min(turn.wake_s, self._events[0][0] if self._events else math.inf)
                if next_s == math.inf:
                    left = total - self._ended
                    raise SimulationError(f"{left} requests are left, and nothing will ever happen")
                rest(next_s)
        arrivals_s = [robot.work.arrival_s for robot in self.robots.values()]
        arrivals_s += [talker.conversation.arrival_s for talker in self.talkers.values()]
        first_s = min(arrivals_s, default=begin_s)
        return Run(
            tuple(robot.outcome for robot in self.robots.values()), loop.stats.steps, busy_s,
            self._clock.now() - first_s, loop.stats.generated_tokens,
            tuple(talker.outcome for talker in self.talkers.values()),
        )  # fmt: skip

    # The loop's sink.

    def segment(self, segment: Segment) -> None:
        """Send a segment to its robot; one that comes a second time says nothing new."""
        robot = self.robots[segment.request_id]
        if segment.index < len(robot.executed):
            return
        done = robot.take(self._clock.now() + self._network_s, self._seconds(robot, segment))
        if self._reports:
            self._report(segment, ReportState.STARTED, done.start_s)
            self._report(segment, ReportState.FINISHED, done.end_s, done.end_s - done.start_s)

    def chunk(self, chunk: StreamChunk) -> None:
        """Send a piece of an answer to who asked."""
        self.talkers[chunk.request_id].hear(self._clock.now() + self._network_s)

    def ended(self, result: Result) -> None:
        """Take note of an end."""
        self._ended += 1
        if isinstance(result, StreamResult):
            self.talkers[result.request_id].result = result
        else:
            self.robots[result.request_id].finished = result.error_code == 0

    def stepped(self, result: StepResult) -> None:
        """Do nothing: the engine's own counts are read at the end."""

    def _ask(self, request: Request, at_s: float) -> None:
        arrival_s = at_s + self._network_s
        self._at(arrival_s, lambda: self.loop.admit(request, arrival_s))

    def _report(self, segment: Segment, state: ReportState, at_s: float, took_s: float = 0) -> None:
        report = ExecutionReport(
            segment.request_id, segment.agent, state, segment.index, took_s, epoch=segment.epoch
        )
        self._at(at_s + self._network_s, lambda: self.loop.report(report))

    def _at(self, time_s: float, happen: Callable[[], None]) -> None:
        heapq.heappush(self._events, (time_s, next(self._order), happen))

    def _happen(self) -> None:
        """Let everything happen whose time has come, also in the middle of the last step."""
        now = self._clock.now() + _TICK_S
        while self._events and self._events[0][0] <= now:
            heapq.heappop(self._events)[2]()
