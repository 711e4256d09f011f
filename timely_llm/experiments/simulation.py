"""A trace in virtual time: the serving loop itself, a simulated engine, simulated robots."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from timely_llm.core.clock import VirtualClock
from timely_llm.core.journal import Journal
from timely_llm.core.request import PlanRequest
from timely_llm.core.segment import Segment
from timely_llm.engines.profiles import DEFAULT_PROFILE, PROFILES, Profile
from timely_llm.engines.simulated import SimulatedEngine
from timely_llm.engines.track import Limits
from timely_llm.experiments import talkers, workload
from timely_llm.experiments.outcome import Run
from timely_llm.experiments.stage import Progress, Robot, Stage
from timely_llm.experiments.workload import Work
from timely_llm.policies.contract import Policy
from timely_llm.policies.step_time import StepTime
from timely_llm.serving.loop import Loop
from timely_llm.serving.patience import Patience
from timely_llm.skills.skill_set import SkillSet
from timely_llm.traces.model import Conversation, Trace

LIMITS = Limits(max_model_len=8192, kv_tokens=10_000_000, max_rows=256, max_step_tokens=2048)
"""What stock engines take by default; memory is no question here."""

MAX_TOKENS = 4096
_FIRST_AT_S = 1.0


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

    def step_time(self) -> StepTime:
        """Return the step times that the loop begins with."""
        if self.learn_step_time:
            return StepTime()
        known = self.profile
        return StepTime(
            known.base_s, known.row_s, known.prefill_token_s, known.context_token_s,
            table_s=known.table_s, beyond_s=known.beyond_s,
        )  # fmt: skip

    def patience(self) -> Patience:
        """Return when requests are given up: never, or when they are worth nothing."""
        return Patience(math.inf, math.inf, math.inf, self.drop_late)

    def uncached(self) -> Settings:
        """Return the same with nothing of a prompt computed before."""
        tokens = self.shared_tokens + self.own_tokens
        return replace(self, shared_tokens=0, own_tokens=tokens)


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
        trace: the workload; the load multiplies its jobs, not its conversations.
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
    return simulate_works(
        works, policy, settings, trace.conversations, journal=journal, progress=progress
    )


def simulate_works(
    works: Sequence[Work],
    policy: Policy,
    settings: Settings,
    conversations: Sequence[Conversation] = (),
    *,
    journal: Journal | None = None,
    progress: Progress = lambda done, total: None,
) -> Run:
    """Return what happens to works whose segments are known, and to conversations.

    See `simulate`.

    Raises:
        SimulationError: requests are left that no policy serves.
    """
    arrivals_s = [w.arrival_s for w in works[:1]] + [c.arrival_s for c in conversations[:1]]
    clock = VirtualClock(min(arrivals_s, default=0.0) - _FIRST_AT_S)
    stage = Stage(clock, true_seconds, settings.network_s, settings.reports)
    pieces = script(works, conversations)
    engine = SimulatedEngine(settings.profile, lambda key, _: pieces[key], clock, settings.limits)
    engine.tokenizer = workload.OneTask()
    loop = Loop(engine, policy, stage, clock, settings.step_time(), journal, settings.patience())
    skill_set = workload.skill_set(settings.shared_tokens)
    loop.register(skill_set)
    task = workload.task_text(settings.own_tokens)
    for work in works:
        stage.enter(work, request_for(work, skill_set.name, task, settings))
    for talk in conversations:
        stage.talk(talk, talkers.request_for(talk, MAX_TOKENS))
    return stage.run(loop, lambda until_s: clock.advance(max(until_s - clock.now(), 0.0)), progress)


def true_seconds(robot: Robot, segment: Segment) -> float:
    """Return the seconds that a robot really takes for a segment which was known before."""
    return robot.work.parts[segment.index].true_s


def script(works: Sequence[Work], conversations: Sequence[Conversation]) -> dict[str, list[str]]:
    """Return what is said to works whose segments are known, and to conversations, as tokens."""
    said = {work.id: work.pieces for work in works}
    return said | {talk.id: talkers.answer(talk.output_tokens) for talk in conversations}


def request_for(work: Work, skill_set: str, task: str, settings: Settings) -> PlanRequest:
    """Return what a robot asks."""
    return PlanRequest(
        work.id,
        work.agent,
        skill_set,
        task,
        work.job.time_utility,
        max_tokens=MAX_TOKENS,
        closed_loop=settings.reports,
    )
