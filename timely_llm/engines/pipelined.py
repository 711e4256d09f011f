"""The simulated engine in stages, with links between them."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from timely_llm.core.clock import Clock
from timely_llm.core.errors import EngineError, EngineSettingError
from timely_llm.core.step import Capacity, SequenceProgress, StageTimes, StepPlan, StepResult
from timely_llm.engines.sequences import AdmittedStep, EngineLimits
from timely_llm.engines.simulated import Profile, Script, SimulatedEngine, content
from timely_llm.policies.pipeline_time import PipelineTime
from timely_llm.policies.step_time import StepTime


@dataclass(frozen=True)
class StageLink:
    """A link from one stage to the next.

    Attributes:
        message_s: seconds of any transfer.
        token_s: seconds for each token of a step.
    """

    message_s: float
    token_s: float

    def transfer_s(self, tokens: int) -> float:
        """Return the seconds in which the hidden states of some tokens pass."""
        return self.message_s + self.token_s * tokens


@dataclass(frozen=True)
class PipelineProfile:
    """Seconds of the steps of a model in stages.

    Attributes:
        name: name for users.
        source: origin of the numbers.
        stages: seconds of the steps of each stage.
        links: from each stage to the next.
        blocking: whether a transfer keeps both its stages from computing; else it overlaps.
        kv_tokens: most tokens of KV that each stage holds; empty: as the limits of the engine say.
        overhead_s: seconds of the engine's own work for each step, before its first stage.

    Raises:
        EngineError: the numbers of stages, links and KV limits do not fit together.
    """

    name: str
    source: str
    stages: tuple[Profile, ...]
    links: tuple[StageLink, ...]
    blocking: bool = True
    kv_tokens: tuple[int, ...] = ()
    overhead_s: float = 0.0

    def __post_init__(self) -> None:
        stages = len(self.stages)
        if stages < 1 or len(self.links) != stages - 1:
            raise EngineError(
                f"the profile {self.name} has {stages} stages and {len(self.links)} links: it needs"
                " at least one stage, and a link between each two"
            )
        if len(self.kv_tokens) not in (0, stages):
            raise EngineError(
                f"the profile {self.name} has KV limits of {len(self.kv_tokens)} stages, not of"
                f" {stages}"
            )

    def step_time(self, micro_batches: int | None = None) -> PipelineTime:
        """Return the step-time model that knows this profile.

        Args:
            micro_batches: steps of a cycle; None: the number of stages.
        """
        return PipelineTime(
            [
                StepTime(p.base_s, p.row_s, p.prefill_token_s, p.context_token_s)
                for p in self.stages
            ],
            [StepTime(link.message_s, link.token_s, link.token_s) for link in self.links],
            micro_batches,
            blocking=float(self.blocking),
            overhead_s=self.overhead_s,
        )

    def within(self, limits: EngineLimits) -> EngineLimits:
        """Return limits with no more KV than the smallest stage holds."""
        return replace(limits, kv_tokens=min((limits.kv_tokens, *self.kv_tokens)))


class Passage(NamedTuple):
    """One step on its way through the pipeline.

    Attributes:
        submitted_s, ended_s: when it was submitted, and when its tokens are there, seconds.
        times: in each stage.
        overhead_s: as `StepResult.overhead_s`.
    """

    submitted_s: float
    ended_s: float
    times: StageTimes
    overhead_s: float


class Pipeline:
    """Stages and links in a row; each works on one step at a time, in order.

    Args:
        stages: number of stages.
        blocking: a transfer begins when both its stages are free, and keeps both; else each link
            takes the steps in order while its stages compute.
        overhead_s: seconds from the submission of a step until it can enter the first stage.
    """

    def __init__(self, stages: int, blocking: bool, overhead_s: float = 0.0) -> None:
        self._blocking = blocking
        self._overhead_s = overhead_s
        self._free_s = [0.0] * stages
        self._link_free_s = [0.0] * (stages - 1)
        self._unused = True

    def enter(self, now: float, stage_s: list[float], link_s: list[float]) -> Passage:
        """Let a step pass; the steps before have entered already.

        Args:
            now: when it is submitted, seconds.
            stage_s: its seconds in each stage.
            link_s: its seconds on each link.
        """
        if self._unused:
            self._free_s[:] = [now] * len(stage_s)  # a time before the first step is no idle time
            self._unused = False
        free_s, begins_s = self._free_s, []
        overhead_s = self._overhead_s if free_s[0] <= now else 0.0
        idle_s, blocked_s = [0.0] * len(stage_s), [0.0] * len(stage_s)
        at_s = now + self._overhead_s
        for stage, computing_s in enumerate(stage_s):
            if stage:
                seconds = link_s[stage - 1]
                begin_s = self._free_for(stage - 1, at_s)
                if self._blocking:
                    idle_s[stage - 1] += begin_s - at_s
                    idle_s[stage] += begin_s - free_s[stage]
                    blocked_s[stage - 1] += seconds
                    blocked_s[stage] += seconds
                    free_s[stage - 1] = free_s[stage] = begin_s + seconds
                else:
                    self._link_free_s[stage - 1] = begin_s + seconds
                at_s = begin_s + seconds
            idle_s[stage] += max(at_s - free_s[stage], 0.0)
            at_s = max(at_s, free_s[stage])
            begins_s.append(at_s - now)
            at_s += computing_s
            free_s[stage] = at_s
        times = map(tuple, (begins_s, stage_s, link_s, blocked_s, idle_s))
        return Passage(now, at_s, StageTimes(*times), overhead_s)

    def _free_for(self, link: int, at_s: float) -> float:
        """Return when a link can send what its stage has computed at `at_s`."""
        taken_s = self._free_s[link + 1] if self._blocking else self._link_free_s[link]
        return max(at_s, taken_s)


class PipelinedEngine(SimulatedEngine):
    """Lets the time of a model in stages pass instead of computing.

    A step is submitted to the first stage; its tokens are there when it has passed all of them.
    Meanwhile the first stages work on the next steps. `collect` lets the time pass until the oldest
    step has ended. KV of a token lies in every stage, so the smallest stage limits it.

    Args:
        profile: seconds of steps and of transfers.
        script: answers of the model; see `SimulatedEngine`.
        clock: see `SimulatedEngine`.
        limits: limits of the engine; None: the defaults.
        micro_batches: steps that can be in flight; None: the number of stages.

    Raises:
        EngineError: fewer steps than stages can be in flight.
    """

    def __init__(
        self,
        profile: PipelineProfile,
        script: Script,
        clock: Clock | None = None,
        limits: EngineLimits | None = None,
        micro_batches: int | None = None,
    ) -> None:
        stages = len(profile.stages)
        steps = stages if micro_batches is None else micro_batches
        if steps < stages:
            raise EngineSettingError(
                f"micro_batches must be at least the number of stages, {stages}, not {steps}"
            )
        limits = profile.within(limits or EngineLimits())
        super().__init__(profile.stages[0], script, clock, limits, steps)
        self._pipeline_profile = profile
        self._pipeline = Pipeline(stages, profile.blocking, profile.overhead_s)
        self._passages: deque[Passage] = deque()

    @property
    def capacity(self) -> Capacity:
        """Limits of the next step."""
        stages = len(self._pipeline_profile.stages)
        return replace(super().capacity, stages=stages, micro_batches=self.in_flight)

    def submit(self, plan: StepPlan) -> Mapping[str, SequenceProgress]:
        """Let a step enter the pipeline; see `Engine.submit`."""
        progress = super().submit(plan)
        self._enter(self._in_flight.newest)
        return progress

    def _enter(self, admitted: AdmittedStep) -> None:
        rows, prefill, context = content(admitted)
        all_rows = len(admitted.sequences)
        stage_s = [
            stage.step_s(all_rows if stage.prompts_are_free else rows, prefill, context)
            if all_rows
            else 0.0
            for stage in self._pipeline_profile.stages
        ]
        links = self._pipeline_profile.links
        link_s = [link.transfer_s(rows + prefill) if all_rows else 0.0 for link in links]
        self._passages.append(self._pipeline.enter(self._clock.now(), stage_s, link_s))

    def collect(self) -> StepResult:
        """Let the time pass until the oldest step has ended; see `Engine.collect`."""
        passage = self._passages[0] if self._passages else None
        try:
            result = super().collect()
        finally:
            if passage is not None:
                self._passages.popleft()
        assert passage is not None
        return replace(result, stages=passage.times, overhead_s=passage.overhead_s)

    def step_s(self, admitted: AdmittedStep, elapsed_s: float) -> float:
        """Let the rest of the oldest step's seconds pass; return the seconds since it began."""
        passage = self._passages[0]
        self._pass_time(max(passage.ended_s - self._clock.now(), 0.0))
        return passage.ended_s - passage.submitted_s

    def close(self) -> None:
        """Free the engine."""
        super().close()
        self._passages.clear()
