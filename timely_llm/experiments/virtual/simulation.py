"""A trace or a fleet in virtual time: the serving loop itself, a simulated engine and robots."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count

import numpy as np

from timely_llm.core.clock import VirtualClock
from timely_llm.core.events.log import EventLog
from timely_llm.core.request import PlanRequest
from timely_llm.core.segment import Segment
from timely_llm.engines.pipelined import PipelinedEngine, PipelineProfile
from timely_llm.engines.sequences import EngineLimits
from timely_llm.engines.simulated import DEFAULT_PROFILE, PROFILES, Profile, SimulatedEngine
from timely_llm.engines.swapping import SwappingEngine
from timely_llm.experiments.contract import ReportProgress
from timely_llm.experiments.virtual import workload
from timely_llm.experiments.virtual.clients import (
    SimulatedClients,
    SimulatedRobot,
    answer,
    stream_request,
)
from timely_llm.experiments.virtual.durations import NOISY
from timely_llm.experiments.virtual.outcome import Run
from timely_llm.experiments.virtual.workload import JobInstance
from timely_llm.policies.contract import Policy
from timely_llm.policies.step_time import StepTime
from timely_llm.serving.busy import BusyGate
from timely_llm.serving.limits import Timeouts
from timely_llm.serving.loop import Loop
from timely_llm.skills.skill_set import SkillSet
from timely_llm.traces.compose import PLANNING_S
from timely_llm.traces.model import Conversation, Job, Trace
from timely_llm.traces.tasks import TraceTask

LIMITS = EngineLimits(max_model_len=8192, kv_tokens=10_000_000, max_rows=256, max_step_tokens=2048)
"""What stock engines take by default; memory is no question here."""

MAX_TOKENS = 4096
_FIRST_AT_S = 1.0

PAUSE_S = PLANNING_S
"""Seconds between the end of a plan and the same robot's next request."""

SPREAD_S = 10.0
"""Robots ask for their first plans at random moments of this many seconds."""


@dataclass(frozen=True)
class SimulationSettings:
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
        durations: where predicted execution times come from, one of `DURATIONS`.
        reports: robots say when they start and finish segments.
        canceled: share of the plans that their robots cancel half way through a segment.
        drop_late: requests are given up when their worth is spent, as the code of Ling et al. 2024
            does.
        learn_step_time: the loop begins with default step times, not with the profile's.
        step_times: predicted over true seconds of a step, for good; 1: as the loop learns them.
            Without effect with a pipeline.
        first_step_times: the same at the beginning; the loop learns better ones.
        gate: conversations that cannot begin in time are refused at once.
        skip: first jobs that do not count in the metrics.
        limits: what the engine takes.
        swap: evicted KV goes to host memory and is loaded again; else it is computed again.
        pipeline: the engine has these stages and links in place of the profile; None: one stage.
        micro_batches: most steps in flight in a pipeline; None: the number of its stages.
    """

    load: int = 1
    seed: int = 0
    profile: Profile = PROFILES[DEFAULT_PROFILE]
    shared_tokens: int = workload.SHARED_TOKENS
    own_tokens: int = workload.OWN_TOKENS
    network_s: float = 0.001
    prediction_error: float = 0.2
    true_noise: float = 0.0
    durations: str = NOISY
    reports: bool = True
    canceled: float = 0.0
    drop_late: bool = False
    learn_step_time: bool = False
    step_times: float = 1.0
    first_step_times: float = 1.0
    gate: bool = False
    skip: int = 10
    limits: EngineLimits = LIMITS
    swap: bool = False
    pipeline: PipelineProfile | None = None
    micro_batches: int | None = None

    def step_time(self) -> StepTime:
        """Return the step times that the loop begins with."""
        if self.learn_step_time:
            return StepTime()
        if self.pipeline is not None:
            return self.pipeline.step_time()
        known = self.profile
        seconds = (known.base_s, known.row_s, known.prefill_token_s, known.context_token_s)
        if self.step_times != 1.0:
            return MisjudgedStepTime(
                self.step_times, *seconds, table_s=known.table_s, beyond_s=known.beyond_s
            )
        first = self.first_step_times
        return StepTime(
            *(first * one for one in seconds),
            table_s=[first * one for one in known.table_s],
            beyond_s=first * known.beyond_s,
        )

    def timeouts(self) -> Timeouts:
        """Return when requests are given up: never, or when they are worth nothing."""
        return Timeouts(math.inf, math.inf, math.inf, self.drop_late)

    def busy(self) -> BusyGate | None:
        """Return what refuses conversations, if anything does."""
        return BusyGate() if self.gate else None

    def uncached(self) -> SimulationSettings:
        """Return the same with nothing of a prompt computed before."""
        tokens = self.shared_tokens + self.own_tokens
        return replace(self, shared_tokens=0, own_tokens=tokens)


def simulate(
    trace: Trace,
    policy: Policy,
    settings: SimulationSettings | None = None,
    *,
    skill_sets: Mapping[str, SkillSet] | None = None,
    event_log: EventLog | None = None,
    progress: ReportProgress = lambda done, total: None,
    explain: bool = False,
) -> Run:
    """Return the outcomes of a trace's jobs under a policy; the same each time for a seed.

    Args:
        trace: the workload; the load multiplies its jobs, not its conversations.
        policy: a new one.
        settings: of the run.
        skill_sets: by name, to cut the plans of jobs without `segment_tokens`.
        event_log: takes the loop's events, on the trace's clock.
        progress: called with requests ended and requests asked.
        explain: the event log has the reasons of each step plan.

    Raises:
        TraceError: the segments of a job are not known, or cannot be predicted.
        SimulationError: requests are left that no policy serves.
    """
    settings = settings or SimulationSettings()
    works = workload.works(
        trace,
        settings.load,
        settings.seed,
        settings.prediction_error,
        settings.true_noise,
        settings.skip,
        skill_sets,
        settings.durations,
        settings.canceled,
    )
    return simulate_works(
        works, policy, settings, trace.conversations, event_log=event_log, progress=progress,
        explain=explain,
    )  # fmt: skip


def simulate_works(
    works: Sequence[JobInstance],
    policy: Policy,
    settings: SimulationSettings,
    conversations: Sequence[Conversation] = (),
    *,
    event_log: EventLog | None = None,
    progress: ReportProgress = lambda done, total: None,
    explain: bool = False,
) -> Run:
    """Return the outcomes of works with known segments, and of conversations.

    See `simulate`.

    Raises:
        SimulationError: requests are left that no policy serves.
    """
    arrivals_s = [w.arrival_s for w in works[:1]] + [c.arrival_s for c in conversations[:1]]
    clock = VirtualClock(min(arrivals_s, default=0.0) - _FIRST_AT_S)
    clients = SimulatedClients(clock, true_seconds, settings.network_s, settings.reports, event_log)
    pieces = script(works, conversations)
    loop, skill_set = simulated_loop(
        pieces.__getitem__, policy, settings, clock, works, explain=explain
    )
    task = workload.task_text(settings.own_tokens)
    for work in works:
        clients.enter(work, request_for(work, skill_set, task, settings))
    for talk in conversations:
        clients.enter_person(talk, stream_request(talk, MAX_TOKENS))
    return clients.run(
        loop, lambda until_s: clock.advance(max(until_s - clock.now(), 0.0)), progress
    )


def simulated_loop(
    pieces: Callable[[str], list[str]],
    policy: Policy,
    settings: SimulationSettings,
    clock: VirtualClock,
    works: Sequence[JobInstance] = (),
    *,
    explain: bool = False,
) -> tuple[Loop, str]:
    """Return a serving loop with a simulated engine, and the name of its skill set.

    Args:
        pieces: the model's output for a request's id, as tokens.
        policy: a new one.
        settings: of the run.
        clock: the loop's; the engine's steps advance it.
        works: their calls are the skills of the skill set.
        explain: step plans have reasons.
    """
    engine = _engine(pieces, settings, clock)
    engine.tokenizer = workload.OneTask()
    loop = Loop(
        engine, policy, clock, settings.step_time(), settings.timeouts(), explain=explain,
        busy=settings.busy(),
    )  # fmt: skip
    skill_set = workload.skill_set(settings.shared_tokens, works)
    if works or settings.shared_tokens:
        loop.register(skill_set)
    return loop, skill_set.name


def _engine(
    pieces: Callable[[str], list[str]], settings: SimulationSettings, clock: VirtualClock
) -> SimulatedEngine:
    """Return the engine of the settings."""

    def script(key: str, text: str) -> list[str]:
        return pieces(key)

    if settings.pipeline is not None:
        return PipelinedEngine(
            settings.pipeline, script, clock, settings.limits, settings.micro_batches
        )
    made = SwappingEngine if settings.swap else SimulatedEngine
    return made(settings.profile, script, clock, settings.limits)


def true_seconds(robot: SimulatedRobot, segment: Segment) -> float:
    """Return the true execution time of a segment, seconds; the work has known segments."""
    return robot.work.parts[segment.index].true_s


def script(
    works: Sequence[JobInstance], conversations: Sequence[Conversation]
) -> dict[str, list[str]]:
    """Return the model's output for works with known segments and for conversations, as tokens."""
    said = {work.id: work.pieces for work in works}
    return said | {talk.id: answer(talk.output_tokens) for talk in conversations}


def request_for(
    work: JobInstance, skill_set: str, task: str, settings: SimulationSettings
) -> PlanRequest:
    """Return the plan request of a work."""
    return PlanRequest(
        work.id,
        work.agent,
        skill_set,
        task,
        work.job.time_utility,
        max_tokens=MAX_TOKENS,
        closed_loop=settings.reports,
    )


Draw = Callable[[np.random.Generator], Job]
"""Returns a random job; its id, robot and time of arrival do not count."""


def drawn_tasks(tasks: Mapping[str, TraceTask], skill_sets: Mapping[str, SkillSet]) -> Draw:
    """Return what draws jobs of some kinds of tasks, each as likely as the others.

    Args:
        tasks: by name.
        skill_sets: by name.
    """
    names = list(tasks)

    def draw(rng: np.random.Generator) -> Job:
        name = names[int(rng.integers(len(names)))]
        task = tasks[name]
        return Job(
            id=name,
            arrival_s=0.0,
            agent=name,
            task=name,
            skill_set=task.skill_set,
            text=task.text,
            time_utility=task.time_utility,
            skill_times=task.execute(skill_sets[task.skill_set], rng),
            plan=task.plan,
            segment_tokens=task.segment_tokens,
        )

    return draw


def drawn_jobs(jobs: Sequence[Job]) -> Draw:
    """Return what draws some jobs, each as likely as the others."""
    return lambda rng: jobs[int(rng.integers(len(jobs)))]


def robot_works(
    robot: int,
    draw: Draw,
    skill_sets: Mapping[str, SkillSet],
    seed: int,
    prediction_error: float,
) -> Iterator[JobInstance]:
    """Yield the plans of a robot, without end; only the first has its time of arrival.

    The robot's number and the seed determine them, not the fleet and not the policy.

    Args:
        robot: its number.
        draw: its jobs.
        skill_sets: by name.
        seed: of tasks, execution times and the errors of their prediction.
        prediction_error: as in `SimulationSettings`.
    """
    rng = np.random.default_rng([seed, robot])
    first_s = float(rng.uniform(0.0, SPREAD_S))
    for number in count():
        job = replace(
            draw(rng),
            id=f"robot_{robot}.{number}",
            arrival_s=0.0 if number else first_s,
            agent=f"robot_{robot}",
        )
        (work,) = workload.works(
            Trace("fleet", jobs=(job,)), 1, int(rng.integers(2**31)), prediction_error, 0.0, 0,
            skill_sets,
        )  # fmt: skip
        yield work


def simulate_fleet(
    robots: Sequence[Iterator[JobInstance]],
    policy: Policy,
    settings: SimulationSettings,
    until_s: float,
) -> Run:
    """Return the outcomes of the plans that robots of one server asked for before `until_s`.

    A robot asks for its next plan `PAUSE_S` after the end of the last one. The run goes on until
    the last plan has ended.

    Args:
        robots: the plans of each robot, one after the other, without end.
        policy: a new one.
        settings: of the run; `load`, `seed`, `prediction_error`, `true_noise` and `skip` have no
            effect here.
        until_s: end of the window, which begins at 0, on the clock of the first arrivals.
    """
    clock = VirtualClock(0.0)
    clients = _FleetClients(clock, robots, settings, until_s)
    loop, skill_set = simulated_loop(
        lambda key: clients.robots[key].work.pieces, policy, settings, clock
    )
    clients.begin(skill_set)
    return clients.run(
        loop, lambda end_s: clock.advance(max(end_s - clock.now(), 0.0)), lambda done, total: None
    )


class _FleetClients(SimulatedClients):
    """Robots with one plan after the other."""

    def __init__(
        self,
        clock: VirtualClock,
        robots: Sequence[Iterator[JobInstance]],
        settings: SimulationSettings,
        until_s: float,
    ) -> None:
        super().__init__(clock, true_seconds, settings.network_s, settings.reports)
        self._works = robots
        self._by_agent: dict[str, Iterator[JobInstance]] = {}
        self._settings = settings
        self._until_s = until_s
        self._task = workload.task_text(settings.own_tokens)
        self._skill_set = ""

    def begin(self, skill_set: str) -> None:
        """Let each robot ask for its first plan."""
        self._skill_set = skill_set
        for works in self._works:
            work = next(works)
            self._by_agent[work.agent] = works
            self._enter(work)

    def plan_ended(self, robot: SimulatedRobot, at_s: float) -> None:
        """Let the robot ask for its next plan."""
        idle_s = max(robot.free_s, at_s + self._settings.network_s)
        work = next(self._by_agent[robot.work.agent])
        self._enter(replace(work, arrival_s=idle_s + PAUSE_S))

    def _enter(self, work: JobInstance) -> None:
        if work.arrival_s < self._until_s:
            self.enter(work, request_for(work, self._skill_set, self._task, self._settings))


class MisjudgedStepTime(StepTime):
    """Predicted seconds of a step at a ratio to the true ones, however many steps are observed.

    Args:
        ratio: predicted over true seconds, above 0.
        seconds: true coefficients, in the order of `StepTime`.
        table_s: true seconds of a step of 1, 2, ... rows; empty: none.
        beyond_s: true seconds of each row beyond the table.
    """

    def __init__(
        self, ratio: float, *seconds: float, table_s: Sequence[float] = (), beyond_s: float = 0.0
    ) -> None:
        super().__init__(
            *(ratio * one for one in seconds),
            table_s=[ratio * one for one in table_s],
            beyond_s=ratio * beyond_s,
        )
        self._ratio = ratio

    def observe(
        self, seconds: float, rows: int, prefill_tokens: int = 0, context_tokens: int = 0
    ) -> None:
        """Learn from a step as if it had taken the ratio of `seconds`."""
        super().observe(self._ratio * seconds, rows, prefill_tokens, context_tokens)
