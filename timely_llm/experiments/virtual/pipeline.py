"""Runs of a model in stages: their workloads, and what each stage did."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from timely_llm.core.events.run_event import RunEvent
from timely_llm.core.events.schema import StepEvent
from timely_llm.core.request import MAX_TOKENS
from timely_llm.core.text import quoted
from timely_llm.engines.pipelined import PipelineProfile
from timely_llm.experiments.contract import ExperimentError
from timely_llm.experiments.policy_spec import MOST_MICRO_BATCHES, PolicySpec
from timely_llm.experiments.results.document import RowValue, Span, SpanKind, TimelineDocument
from timely_llm.experiments.results.metrics import MeasuredRow
from timely_llm.experiments.sources import shipped_skill_sets
from timely_llm.experiments.virtual.outcome import Run
from timely_llm.experiments.virtual.simulation import LIMITS, SimulationSettings, simulate
from timely_llm.traces.model import Conversation, Trace

BLOCKING, OVERLAPPING = "blocking", "overlapping"
LINKS = (BLOCKING, OVERLAPPING)
LINKS_ARE = (
    "`blocking`: a transfer keeps both its stages from computing, as a synchronous send and receive"
    " do; `overlapping`: stages compute meanwhile"
)
MOST_ARE = f"{MOST_MICRO_BATCHES} with a rule of micro-batches, else the number of stages"


class EqualRequests(NamedTuple):
    """Requests of one size that come at once.

    Attributes:
        requests: their number.
        prompt, answer: tokens of each.
    """

    requests: int
    prompt: int
    answer: int

    @classmethod
    def parse(cls, text: str) -> EqualRequests:
        """Return what a text such as `64/256/256` means.

        Raises:
            ExperimentError: it is no such text, or a number is not possible.
        """
        found = re.fullmatch(r"(\d{1,4})/(\d{1,4})/(\d{1,4})", text, re.ASCII)
        made = cls(*map(int, found.groups())) if found else cls(0, 0, 0)
        if not (1 <= made.requests <= 1024 and made.prompt >= 1 and 2 <= made.answer <= MAX_TOKENS):
            raise ExperimentError(
                "a workload must be like 64/256/256: up to 1024 requests, tokens of each prompt,"
                f" and 2 to {MAX_TOKENS} tokens of each answer, not {quoted(text)}"
            )
        return made

    def trace(self) -> Trace:
        """Return it as a workload; answers end at the most tokens that their requests declare."""
        made = tuple(
            Conversation(
                f"r{place}", 0.0, f"r{place}", self.prompt, self.answer, max_tokens=self.answer
            )
            for place in range(self.requests)
        )
        return Trace(f"{self.requests}/{self.prompt}/{self.answer}", "composed", (), made)

    def bound_s(self, profile: PipelineProfile) -> float:
        """Return seconds that no schedule falls below, without a KV limit.

        Each token passes each stage and each link once, each answer takes one pass for each of its
        tokens, and the first stage has at least one step for each pass.
        """
        tokens = self.requests * (self.prompt + self.answer - 1)
        one_s = [stage.step_s(1) for stage in profile.stages]
        sent_s = [link.transfer_s(1) for link in profile.links]
        stage_s = [self.answer * stage.base_s + tokens * stage.row_s for stage in profile.stages]
        link_s = [tokens * link.token_s for link in profile.links]
        if profile.blocking:
            for place, busy_s in enumerate(link_s):
                stage_s[place] += busy_s
                stage_s[place + 1] += busy_s
        return max(*stage_s, *link_s, self.answer * (sum(one_s) + sum(sent_s)))


def poisson(
    requests: int,
    rate: float,
    prompts: tuple[int, int],
    answers: tuple[int, int],
    slo: tuple[float, float],
    seed: int,
) -> Trace:
    """Return requests at Poisson times, with lengths that are as likely as each other.

    Each declares the most tokens of all answers: a server knows no length before.

    Args:
        requests: their number.
        rate: requests a second.
        prompts: fewest and most tokens of a prompt.
        answers: fewest and most tokens of an answer.
        slo: seconds to the first token, and mean seconds of each later token.
        seed: of times and lengths.
    """
    rng = np.random.default_rng(seed)
    at_s = np.cumsum(rng.exponential(1.0 / rate, requests))
    prompt = rng.integers(prompts[0], prompts[1] + 1, requests)
    answer = rng.integers(answers[0], answers[1] + 1, requests)
    made = tuple(
        Conversation(
            f"r{place}", float(at_s[place]), f"r{place}", int(prompt[place]), int(answer[place]),
            *slo, max_tokens=answers[1],
        )
        for place in range(requests)
    )  # fmt: skip
    return Trace(f"{rate:g}/s", f"Poisson, seed {seed}", (), made)


@dataclass
class StageMeter:
    """An event log that adds up the times of each stage, and keeps those of a window.

    Attributes:
        window: start and end of the kept times, seconds; None: nothing is kept.
        compute_s, blocked_s: seconds in which each stage computed, and in which a transfer kept it
            from computing.
        link_s: seconds in which each link transferred.
        spans: in the window.
    """

    window: tuple[float, float] | None = None
    compute_s: list[float] = field(default_factory=list)
    blocked_s: list[float] = field(default_factory=list)
    link_s: list[float] = field(default_factory=list)
    spans: list[Span] = field(default_factory=list)

    def write(self, event: RunEvent) -> None:
        """Take the times of a step."""
        if not isinstance(event, StepEvent) or event.result is None:
            return
        times = event.result.stages
        if times is None:  # one stage
            self.compute_s = _sums(self.compute_s, (event.s,))
            return
        self.compute_s = _sums(self.compute_s, times.stage_s)
        self.blocked_s = _sums(self.blocked_s, times.blocked_s)
        self.link_s = _sums(self.link_s, times.link_s)
        if self.window is not None:
            self._keep(event.t, times.begins_s, times.stage_s, times.link_s, times.blocked_s)

    def close(self) -> None:
        """Do nothing."""

    def _keep(
        self,
        t: float,
        begins_s: tuple[float, ...],
        stage_s: tuple[float, ...],
        link_s: tuple[float, ...],
        blocked_s: tuple[float, ...],
    ) -> None:
        """Keep the spans of a step; a blocking transfer ends where the next stage begins."""
        for place, (begin_s, seconds) in enumerate(zip(begins_s, stage_s, strict=True)):
            self._span(place, "computing", t + begin_s, seconds)
            if place and blocked_s[place]:
                sent_s = link_s[place - 1]
                for stage in (place - 1, place):
                    self._span(stage, "sending", t + begin_s - sent_s, sent_s)

    def _span(self, stage: int, kind: SpanKind, begin_s: float, seconds: float) -> None:
        assert self.window is not None
        low, high = self.window
        first, last = max(begin_s, low), min(begin_s + seconds, high)
        if round(first, 6) < round(last, 6):
            self.spans.append(
                Span(
                    agent=_stage(stage), request=stage, kind=kind, start_s=round(first, 6),
                    end_s=round(last, 6),
                )
            )  # fmt: skip

    def timeline(self, name: str) -> TimelineDocument:
        """Return what the stages did in the window; what is left is idle."""
        return TimelineDocument(
            name=name,
            requests=tuple(_stage(place) for place in range(len(self.compute_s))),
            urgent=(False,) * len(self.compute_s),
            spans=tuple(sorted(self.spans, key=lambda span: (span.request, span.start_s))),
        )


def _stage(place: int) -> str:
    return f"stage {place + 1}"


def _sums(sums: list[float], more: tuple[float, ...]) -> list[float]:
    """Return sums with more added to each."""
    return [a + b for a, b in zip(sums or [0.0] * len(more), more, strict=True)]


@dataclass(frozen=True)
class PipelineCase:
    """One run of a model in stages.

    Attributes:
        trace: its workload.
        spec: its policy.
        profile: stages and links.
        names: key columns of its row.
        budget: most tokens of a step.
        window: times that a timeline shows, seconds; None: no timeline.
    """

    trace: Trace
    spec: PolicySpec
    profile: PipelineProfile
    names: Mapping[str, RowValue]
    budget: int = LIMITS.max_step_tokens
    window: tuple[float, float] | None = None

    def simulate(self) -> tuple[Run, StageMeter]:
        """Return what requests got, and what the stages did."""
        settings = self.spec.settings(
            SimulationSettings(
                pipeline=self.profile,
                network_s=0.0,
                shared_tokens=0,
                limits=replace(LIMITS, max_step_tokens=self.budget),
            )
        )
        meter = StageMeter(self.window)
        skill_sets = shipped_skill_sets()
        run = simulate(
            self.trace, self.spec.make(), settings, skill_sets=skill_sets, event_log=meter
        )
        return run, meter


DEFINITIONS: Mapping[str, str] = {
    "completion_s": "from the first request to the end of the last answer, seconds",
    "proc_s": "time in which the first stage computed, or a transfer kept it from computing, in"
    " seconds",
    "idle_s": "the rest of the completion time at the first stage, seconds",
    "idle_share": "share of the completion time in which a stage neither computed nor was kept by a"
    " transfer, mean over the stages",
    **{
        f"idle_{number}": f"the same, of stage {number}" for number in range(1, 5)
    },
    "link_share": "share of the completion time in which the busiest link transferred",
    "steps": "micro-batches",
    "evictions": "how often the KV of a sequence was evicted",
    "recomputed_tokens": "tokens with KV that was computed a second time",
}  # fmt: skip


def stage_columns(run: Run, meter: StageMeter) -> MeasuredRow:
    """Return the columns of `DEFINITIONS`; stages that are missing have none."""
    whole_s = run.span_s
    blocked_s = meter.blocked_s or [0.0] * len(meter.compute_s)
    busy_s = [a + b for a, b in zip(meter.compute_s, blocked_s, strict=True)]
    idle = [1.0 - one / whole_s for one in busy_s]
    return {
        "completion_s": whole_s,
        "proc_s": busy_s[0],
        "idle_s": whole_s - busy_s[0],
        "idle_share": sum(idle) / len(idle),
        **{f"idle_{number}": share for number, share in enumerate(idle, 1)},
        "link_share": max(meter.link_s, default=0.0) / whole_s,
        "steps": run.steps,
        "evictions": run.evictions,
        "recomputed_tokens": run.recomputed_tokens,
    }
