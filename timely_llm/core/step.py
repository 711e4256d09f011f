"""One step of an engine: what a policy plans, what the engine can take, and what the step did."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from timely_llm.core.reason import Reasons


class SequenceProgress(NamedTuple):
    """Progress of a sequence, counted by its engine.

    Attributes:
        to_compute: tokens that the next step can compute: 1 to decode, more to prefill, 0 while the
            sequence waits for a step in flight. Includes tokens with KV that is being loaded, and
            with `async_scheduling` pending tokens.
        context_tokens: tokens with KV; includes tokens that steps in flight compute.
        shared_tokens: context tokens of a pinned prefix, with KV that other sequences share.
        pending_tokens: new tokens expected from steps in flight.
        loading: whether KV of the sequence is being loaded.
    """

    to_compute: int
    context_tokens: int = 0
    shared_tokens: int = 0
    pending_tokens: int = 0
    loading: bool = False

    @property
    def tokens(self) -> int:
        """Tokens of the sequence while no step in flight computes a new one."""
        return self.context_tokens + self.to_compute

    @property
    def kv_tokens(self) -> int:
        """Tokens with KV that no other sequence shares: an eviction frees them."""
        return self.context_tokens - self.shared_tokens


class StepContent(NamedTuple):
    """What one step computes.

    Attributes:
        rows: sequences that decode.
        prompts: sequences that compute prompt tokens.
        prompt_tokens: prompt tokens that they compute.
        context_tokens: tokens that all sequences attend to.
    """

    rows: int = 0
    prompts: int = 0
    prompt_tokens: int = 0
    context_tokens: int = 0


@dataclass(frozen=True)
class Capacity:
    """Limits of one step of an engine.

    Attributes:
        free_tokens: KV tokens that can be stored without an eviction.
        max_rows: most sequences in one step.
        max_step_tokens: most tokens computed in one step.
        max_model_len: most tokens of one sequence, prompt and answer.
        speculative_tokens: most speculative tokens of a decoding sequence, if its entry in the plan
            has room for them; 0: no speculative decoding.
        stages: pipeline stages of the engine.
        micro_batches: most steps in flight.
        in_flight: steps in flight, the oldest first. The engine leaves this to the serving loop.
    """

    free_tokens: int
    max_rows: int
    max_step_tokens: int
    max_model_len: int = 1 << 30
    speculative_tokens: int = 0
    stages: int = 1
    micro_batches: int = 1
    in_flight: tuple[StepContent, ...] = ()

    @property
    def steps_in_flight(self) -> int:
        """Number of steps in flight."""
        return len(self.in_flight)


@dataclass(frozen=True)
class StepPlan:
    """The sequences of one forward pass.

    Attributes:
        entries: (key, tokens) in order: 1 token to decode, n tokens to prefill a chunk of n. The
            serving loop adds speculative tokens; policies leave no room for them.
        evictable: keys of sequences that the engine may evict, the first victim first; empty if the
            free KV is enough.
        wake_s: time of the next plan if nothing happens before, on the clock of `now`, seconds. For
            policies that let the engine rest while requests wait.
        reasons: (key, reason) of each generation that could take part; empty unless the policy is
            asked to explain.
    """

    entries: tuple[tuple[str, int], ...] = ()
    evictable: tuple[str, ...] = ()
    wake_s: float = math.inf
    reasons: Reasons = ()

    def __bool__(self) -> bool:
        return bool(self.entries)

    @cached_property
    def keys(self) -> frozenset[str]:
        """Keys of all entries."""
        return frozenset(key for key, _ in self.entries)


class StageTimes(NamedTuple):
    """Times of one step in a pipeline, seconds.

    Attributes:
        begins_s: when each stage began to compute, after the submission of the step; empty if the
            clocks of the stages are not compared.
        stage_s: computing of each stage.
        link_s: transfer over each link, from one stage to the next.
        blocked_s: transfers of each stage, to and from it, during which it could not compute.
        idle_s: time that each stage waited: for the step, or for the next stage to take it.
    """

    begins_s: tuple[float, ...]
    stage_s: tuple[float, ...]
    link_s: tuple[float, ...]
    blocked_s: tuple[float, ...]
    idle_s: tuple[float, ...]

    @property
    def fit(self) -> bool:
        """Whether there is one number for each stage and link, none of them impossible."""
        stages = len(self.stage_s)
        return (
            stages > 0
            and len(self.begins_s) in (0, stages)
            and len(self.link_s) == stages - 1
            and len(self.blocked_s) == len(self.idle_s) == stages
            and all(0.0 <= one < math.inf for times in self for one in times)
        )

    @property
    def rounded(self) -> StageTimes:
        """These times in whole microseconds, for logs."""
        return StageTimes(*(tuple(round(one, 6) for one in times) for times in self))


class StageUse(NamedTuple):
    """Shares of the time of some steps in which a stage and its link worked.

    Attributes:
        compute: in which the stage computed.
        idle: in which it waited; in the rest, transfers kept it from computing.
        link: in which the link to the next stage was in use; 0 for the last stage.
        window: the time of these steps, seconds.
    """

    compute: float
    idle: float
    link: float
    window: float


def stage_uses(steps: Collection[StageTimes]) -> list[StageUse]:
    """Return the shares of each stage in the time of some steps; empty: there are none."""
    if not steps:
        return []
    compute, links, blocked, idle = (
        [math.fsum(times) for times in zip(*parts, strict=True)]
        for parts in list(zip(*steps, strict=True))[1:]
    )
    whole = [max(sum(parts), 1e-9) for parts in zip(compute, blocked, idle, strict=True)]
    return [
        StageUse(compute_s / whole_s, idle_s / whole_s, link_s / whole_s, whole_s)
        for compute_s, idle_s, link_s, whole_s in zip(
            compute, idle, [*links, 0.0], whole, strict=True
        )
    ]


@dataclass(frozen=True)
class StepResult:
    """Result of one step.

    Attributes:
        tokens: new token ids by key: one for a sequence with nothing left to compute, more if
            speculative tokens were accepted.
        computed: computed tokens by key, accepted speculative tokens included; invalidated
            sequences are left out.
        duration_s: seconds from the submission of the step. From the end of the step before if that
            was later and `async_scheduling` is on.
        recomputed: the part of `computed` with KV that had been evicted, by key.
        evicted: keys of sequences that were evicted for this step; their token ids are kept.
        failures: key -> one sentence, for sequences that this step could not serve.
        speculative: speculative tokens that were computed beyond the plan, by key. Accepted ones
            are in `tokens`; rejected ones leave no trace.
        loaded: tokens with KV that was found or loaded instead of computed, by key. Includes
            asynchronous loads that finished in this step; 0 means failed.
        loading: keys of the plan that computed nothing because their KV is being loaded. The step
            in which the load ends has them in `loaded`, unless they are removed before.
        progress: progress of each sequence that took part, failed, was evicted, or is named in
            `loaded` or `loading`, by key; removed sequences are left out.
        stages: times of the step in each stage of a pipeline; None: one stage, or not measured.
        overhead_s: seconds of a step in a pipeline in which neither a stage nor a link had it:
            scheduling, and messages to and from the stages; 0: not measured, as of a step that
            waited for others meanwhile.
        transfer_s: the part of `duration_s` in which KV went to host memory or back and nothing was
            computed, seconds; 0: none, or not measured.
        logprobs: natural logarithm of the probability of each of `tokens`, by key, of sequences
            with a `Decoding` that asks for it. It is the probability at temperature 1, among the
            tokens that the grammar allows. An engine without a model draws it.
    """

    tokens: Mapping[str, Sequence[int]]
    computed: Mapping[str, int]
    duration_s: float
    recomputed: Mapping[str, int] = field(default_factory=dict)
    evicted: tuple[str, ...] = ()
    failures: Mapping[str, str] = field(default_factory=dict)
    speculative: Mapping[str, int] = field(default_factory=dict)
    loaded: Mapping[str, int] = field(default_factory=dict)
    loading: tuple[str, ...] = ()
    progress: Mapping[str, SequenceProgress] = field(default_factory=dict)
    stages: StageTimes | None = None
    overhead_s: float = 0.0
    transfer_s: float = 0.0
    logprobs: Mapping[str, Sequence[float]] = field(default_factory=dict)

    @property
    def waiting_for_kv(self) -> Set[str]:
        """Keys that computed nothing because their KV load is running or has just ended."""
        return (self.loaded.keys() - self.computed.keys()).union(self.loading)

    @property
    def only_waited(self) -> bool:
        """Whether the step was no forward pass: the engine only waited for KV loads."""
        return not self.computed and bool(self.waiting_for_kv)

    @property
    def planned(self) -> list[int]:
        """Computed tokens of each sequence without speculative tokens: 1 if it decoded."""
        if not self.speculative:
            return list(self.computed.values())
        return [
            tokens - (len(self.tokens[key]) - 1 if key in self.speculative else 0)
            for key, tokens in self.computed.items()
        ]
