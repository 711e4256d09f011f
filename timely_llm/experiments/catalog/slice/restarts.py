"""`slice-restarts`: how often SLICE begins a new cycle, and how often for a plan's segment.

Algorithm 4 of Zhou et al. 2025 selects tasks anew when a task arrives or departs. The policy
`slice` takes each segment of a plan as a task, so that the end of a segment restarts the cycle too.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from timely_llm.experiments.catalog.mixed import PRESET, people_beside
from timely_llm.experiments.contract import (
    Experiment,
    ExperimentError,
    ReportProgress,
    WorkloadOptions,
)
from timely_llm.experiments.parallel import run_all
from timely_llm.experiments.policy_spec import parse
from timely_llm.experiments.results.document import Row, RunDocument
from timely_llm.experiments.results.lanes import talk_columns
from timely_llm.experiments.results.metrics import plain
from timely_llm.experiments.results.metrics import row as plan_row
from timely_llm.experiments.sources import shipped_skill_sets
from timely_llm.experiments.sweep import RunSpec, Scored, cases
from timely_llm.experiments.sweep import document as sweep_document
from timely_llm.experiments.virtual.simulation import simulate
from timely_llm.policies.slice import Restart, Slice

KEYS = ("workload", "load", "policy", "rate")
DEFINITIONS = {
    "rate": "conversations a second, Poisson",
    "cycles": "cycles of the decode mask that were begun",
    "steps_a_cycle": "engine steps for each of them",
    "at_tasks": "share of the cycles that began because a request came or ended",
    "at_segments": "share of the cycles that began because only a segment of a plan ended",
    "at_cycle_ends": "share of the cycles that began because the last one was complete",
}
MEASURES = (*(name for name in DEFINITIONS if name != "rate"), "utility", "urgent_utility")


@dataclass(frozen=True)
class RestartsOptions(WorkloadOptions):
    """Options of `slice-restarts`.

    Attributes:
        policies: `slice` with options of its own.
        rates: conversations a second.
    """

    policies: tuple[str, ...] = ("slice",)
    rates: tuple[float, ...] = (0.0, 1.0, 2.0)
    explain: bool = field(default=False, init=False)


def run(options: RestartsOptions, progress: ReportProgress) -> RunDocument:
    """Return the causes of new cycles beside the worth of plans, by rate of conversations."""
    for text in options.policies:
        if parse(text).name != "slice":
            raise ExperimentError(f"only slice has cycles, not {text}")
    mixed = people_beside(cases(options, (PRESET,)), options.loads, options.rates)
    rows = run_all(score, mixed, options.jobs, progress)
    return sweep_document(
        EXPERIMENT,
        options,
        [Scored(row, ()) for row in rows],
        keys=KEYS,
        measures=MEASURES,
        definitions=DEFINITIONS,
    )


def score(case: RunSpec) -> Row:
    """Run a case and return its row."""
    policy = case.spec.make()
    assert isinstance(policy, Slice)
    settings = case.spec.settings(case.settings)
    run = simulate(case.trace, policy, settings, skill_sets=shipped_skill_sets())
    begun = policy.restarts
    cycles = begun.total()
    return plain(
        {
            **plan_row(run, **case.names),
            **talk_columns(run.conversations),
            "cycles": cycles,
            "steps_a_cycle": run.steps / cycles,
            "at_tasks": begun[Restart.TASKS] / cycles,
            "at_segments": begun[Restart.SEGMENTS] / cycles,
            "at_cycle_ends": begun[Restart.CYCLE_END] / cycles,
        }
    )


EXPERIMENT = Experiment(
    name="slice-restarts",
    question="How often does a plan's segment restart SLICE's cycle? (Zhou et al. 2025,"
    " Algorithm 4)",
    run=run,
    defaults=RestartsOptions(),
)
