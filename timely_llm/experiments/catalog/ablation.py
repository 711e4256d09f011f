"""`ablation`: the policy `deadline` with each of its options at other values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from timely_llm.experiments.catalog.mixed import people_beside
from timely_llm.experiments.contract import Experiment, ReportProgress, WorkloadOptions
from timely_llm.experiments.parallel import run_all
from timely_llm.experiments.results.document import RunDocument
from timely_llm.experiments.results.metrics import IN_VAIN
from timely_llm.experiments.sweep import (
    MEASURES,
    RunSpec,
    cases,
    compared,
    document,
    score,
)
from timely_llm.experiments.virtual import slice_sweep

CHANGED: Mapping[str, str] = {
    "deadline:kappa=0": "an idle robot costs nothing, so requests may starve",
    "deadline:kappa=1": "an idle robot costs ten times as much",
    "deadline:lead_s=0.5": "plans are suspended until 0.5 s before their robot will be idle",
    "deadline:people=0.5": "people are worth half as much beside robots",
    "deadline:people=2": "people are worth twice as much beside robots",
    "deadline:urgent=0": "all plans are worth the same",
    "deadline:urgent=2": "ratios of plans' worth are squared",
}
DRONES, PEOPLE = "wid2", "wid1"
"""Robots alone; robots with people on the slow device of Zhou et al. 2025."""

PEOPLE_RATE = 0.5
"""Conversations a second."""

KEYS = ("workload", "load", "rate", "policy")


@dataclass(frozen=True)
class AblationOptions(WorkloadOptions):
    """Options of `ablation`.

    Attributes:
        canceled: share of the plans that robots cancel half way through a segment; above 0, all
            runs have robots alone.
    """

    policies: tuple[str, ...] = ("deadline", *CHANGED)
    loads: tuple[int, ...] = (1, 2, 4)
    seeds: int = 2
    canceled: float = 0.0


def run(options: AblationOptions, progress: ReportProgress) -> RunDocument:
    """Return the results of the policy with each option at other values."""
    chosen = [_named(case) for case in cases(options, (DRONES,))]
    if options.canceled:
        chosen = [_with_canceled(case, options.canceled) for case in chosen]
    elif options.trace is None:
        chosen = [*_people(options), *chosen]
    scored = run_all(score, chosen, options.jobs, progress)
    used = {one.row["policy"] for one in scored}
    return document(
        EXPERIMENT,
        options,
        compared(scored, "utility", "deadline"),
        keys=(*KEYS, "canceled") if options.canceled else KEYS,
        measures=(
            *MEASURES,
            "longest_response_s",
            "utility_vs_deadline",
            *([IN_VAIN] if options.canceled else []),
        ),
        definitions={
            "rate": "conversations a second, Poisson; 0: robots alone",
            "canceled": "share of the plans that robots cancel half way through a segment",
            IN_VAIN: "share of the generated tokens that no robot began to execute",
            "load": "requests for each job",
        },
        notes=[f"`{policy}`: {what}." for policy, what in CHANGED.items() if policy in used],
    )


def _named(case: RunSpec, **names: str | float) -> RunSpec:
    return replace(case, names={"rate": 0.0, **case.names, **names})


def _with_canceled(case: RunSpec, share: float) -> RunSpec:
    return replace(_named(case, canceled=share), settings=replace(case.settings, canceled=share))


def _people(options: AblationOptions) -> list[RunSpec]:
    """Return the policies with robots and people on a slow device."""
    slow = replace(options, profile=slice_sweep.PROFILE, loads=(1,))
    return people_beside(cases(slow, (PEOPLE,)), slow.loads, (PEOPLE_RATE,))


EXPERIMENT = Experiment(
    name="ablation",
    question="What is each option of the policy deadline worth?",
    run=run,
    defaults=AblationOptions(),
)
