"""A trace in virtual time: the serving loop itself, a simulated engine, simulated robots."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import count

from timely_llm.core.clock import VirtualClock
from timely_llm.core.errors import TimelyError
from timely_llm.core.journal import Journal
from timely_llm.core.request import ExecutionReport, PlanRequest, PlanResult, ReportState
from timely_llm.core.segment import Segment
from timely_llm.engines.profiles import DEFAULT_PROFILE, PROFILES, Profile
from timely_llm.engines.simulated import SimulatedEngine
from timely_llm.engines.track import Limits
from timely_llm.experiments import workload
from timely_llm.experiments.outcome import Executed, Outcome, Run
from timely_llm.experiments.workload import Work
from timely_llm.policies.contract import Policy
from timely_llm.policies.step_time import StepTime
from timely_llm.serving.loop import Loop
from timely_llm.serving.patience import Patience
from timely_llm.skills.skill_set import SkillSet
from timely_llm.traces.model import Trace

LIMITS = Limits(max_model_len=8192, kv_tokens=10_000_000, max_rows=256, max_step_tokens=2048)
"""What stock engines take by default; memory is no question here."""

Progress = Callable[[int, int], None]
_FIRST_AT_S = 1.0
_TICK_S = 1e-9  # what adding up steps may lose


class SimulationError(TimelyError):
    """A run cannot come to its end."""


@dataclass(frozen=True)
class Settings:
    """What a run is like, whatever its trace and its policy are.

    Attributes:
        load: how often every job is asked, 0.2 ms apart, by another agent each time.
        seed: of the errors of predicted execution times.
        profile: how long steps take.
        shared_tokens: tokens of every prompt that are computed once.
        own_tokens: tokens of every prompt that are computed for each request.
        network_s: seconds of a message, each way.
        prediction_error: standard deviation of the logarithm of predicted over true seconds.
        true_noise: the same, of true seconds over the trace's.
        reports: robots say when they start and finish segments.
        drop_late: requests are given up when their worth is spent, as paper 001's code does.
        learn_step_time: the loop begins with default step times, not with the profile's.
        skip: first jobs that do not count in the metrics.
        limits: what the engine takes.
    """

    load: int = 1
    seed: int = 0
    profile: Profile = PROFILES[DEFAULT_PROFILE]
    shared_tokens: int = workload.SHARED_TOKENS
    own_tokens: int = workload.OWN_TOKENS
    network_s: float = 0.001
    prediction_error: float = 0.2
    true_noise: float = 0.0
    reports: bool = True
    drop_late: bool = False
    learn_step_time: bool = False
    skip: int = 10
    limits: Limits = LIMITS

    def uncached(self) -> Settings:
        """Return the same with nothing of a prompt computed before."""
        tokens = self.shared_tokens + self.own_tokens
        values = {**self.__dict__, "shared_tokens": 0, "own_tokens": tokens}
        return Settings(**values)


def simulate(
    trace: Trace,
    policy: Policy,
    settings: Settings | None = None,
    *,
    skill_sets: Mapping[str, SkillSet] | None = None,
    journal: Journal | None = None,
    progress: Progress = lambda done, total: None,
) -> Run:
    """Return what happens to a trace's jobs under a policy; the same each time for a seed.

    Args:
        trace: the workload; its conversations are left out.
        policy: a new one.
        settings: what the run is like.
        skill_sets: by name, for jobs whose plans must be cut to know their segments.
        journal: takes the loop's events, on the trace's clock.
        progress: called with requests ended and requests asked.

    Raises:
        TraceError: the segments of a job are not known.
        SimulationError: requests are left that no policy serves.
    """
    settings = settings or Settings()
    works = workload.works(
        trace,
        settings.load,
        settings.seed,
        settings.prediction_error,
        settings.true_noise,
        settings.skip,
        skill_sets,
    )
    return _Simulation(works, policy, settings, journal).run(progress)


@dataclass(eq=False)
class _Robot:
    """One robot with one plan: executes segments in order, each as long as the trace says."""

    work: Work
    free_s: float
    finished: bool = False
    executed: list[Executed] = field(default_factory=list)

    def take(self, index: int, received_s: float) -> Executed:
        start_s = max(received_s, self.free_s)
        self.free_s = start_s + self.work.parts[index].true_s
        self.executed.append(Executed(received_s, start_s, self.free_s))
        return self.executed[-1]


class _Simulation:
    """One run."""

    def __init__(
        self, works: Sequence[Work], policy: Policy, settings: Settings, journal: Journal | None
    ) -> None:
        self._settings = settings
        self._robots = {work.id: _Robot(work, work.arrival_s) for work in works}
        begin_s = works[0].arrival_s if works else 0.0
        self._clock = VirtualClock(begin_s - _FIRST_AT_S)
        profile = settings.profile
        engine = SimulatedEngine(profile, self._say, self._clock, settings.limits)
        engine.tokenizer = workload.OneTask()
        known = StepTime(
            profile.base_s, profile.row_s, profile.prefill_token_s, profile.context_token_s
        )
        patience = Patience(math.inf, math.inf, math.inf, settings.drop_late)
        self._loop = Loop(
            engine, policy, self, self._clock, StepTime() if settings.learn_step_time else known,
            journal, patience,
        )  # fmt: skip
        self._skill_set = workload.skill_set(settings.shared_tokens)
        self._task = workload.task_text(settings.own_tokens)
        self._loop.register(self._skill_set)
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._order = count()
        self._ended = 0
        for work in works:
            self._at(work.arrival_s + settings.network_s, partial(self._ask, work))

    def run(self, progress: Progress) -> Run:
        """Bring it to its end."""
        begin_s, total, told, busy_s = self._clock.now(), len(self._robots), 0, 0.0
        while True:
            self._happen()
            before_s = self._clock.now()
            turn = self._loop.turn()
            busy_s += self._clock.now() - before_s
            if self._ended > told:
                told = self._ended
                progress(told, total)
            if told == total:
                break
            if not turn.stepped:
                self._rest(turn.wake_s)
        stats = self._loop.stats
        outcomes = tuple(
            Outcome(robot.work, robot.finished, tuple(robot.executed))
            for robot in self._robots.values()
        )
        return Run(
            outcomes, stats.steps, busy_s, self._clock.now() - begin_s - _FIRST_AT_S,
            stats.generated_tokens,
        )  # fmt: skip

    def segment(self, segment: Segment) -> None:
        """Send a segment to its robot; one that comes a second time says nothing new."""
        robot = self._robots[segment.request_id]
        if segment.index < len(robot.executed):
            return
        done = robot.take(segment.index, self._clock.now() + self._settings.network_s)
        if self._settings.reports:
            self._report(segment, ReportState.STARTED, done.start_s)
            self._report(segment, ReportState.FINISHED, done.end_s, done.end_s - done.start_s)

    def ended(self, result: PlanResult) -> None:
        """Take note of an end."""
        self._ended += 1
        self._robots[result.request_id].finished = result.error_code == 0

    def _say(self, key: str, prompt: str) -> Sequence[str]:
        return self._robots[key].work.pieces

    def _ask(self, work: Work) -> None:
        request = PlanRequest(
            work.id,
            work.agent,
            self._skill_set.name,
            self._task,
            work.job.time_utility,
            max_tokens=4096,
            closed_loop=self._settings.reports,
        )
        self._loop.admit(request, work.arrival_s + self._settings.network_s)

    def _report(self, segment: Segment, state: ReportState, at_s: float, took_s: float = 0) -> None:
        report = ExecutionReport(
            segment.request_id, segment.agent, state, segment.index, took_s, epoch=segment.epoch
        )
        self._at(at_s + self._settings.network_s, partial(self._loop.report, report))

    def _at(self, time_s: float, happen: Callable[[], None]) -> None:
        heapq.heappush(self._events, (time_s, next(self._order), happen))

    def _happen(self) -> None:
        """Let everything happen whose time has come, also in the middle of the last step."""
        now = self._clock.now() + _TICK_S
        while self._events and self._events[0][0] <= now:
            heapq.heappop(self._events)[2]()

    def _rest(self, wake_s: float) -> None:
        """Let time pass until something happens."""
        next_s = min(wake_s, self._events[0][0] if self._events else math.inf)
        if next_s == math.inf:
            left = len(self._robots) - self._ended
            raise SimulationError(f"{left} requests are left, and nothing will ever happen")
        self._clock.advance(max(next_s - self._clock.now(), 0.0))
