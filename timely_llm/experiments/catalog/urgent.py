"""`urgent`: urgent plans of many robots at once, by their number."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import cycle
from statistics import fmean

from timely_llm.experiments.catalog.bursts import EVERY_S
from timely_llm.experiments.contract import (
    Experiment,
    ExperimentError,
    ReportProgress,
    WorkloadOptions,
)
from timely_llm.experiments.parallel import run_all
from timely_llm.experiments.policy_spec import PAPER_BOUND, SERVED
from timely_llm.experiments.results import servers
from timely_llm.experiments.results.document import Row, RunDocument
from timely_llm.experiments.results.fleet import in_time
from timely_llm.experiments.results.metrics import UNBOUNDED, plain
from timely_llm.experiments.results.metrics import row as plan_row
from timely_llm.experiments.sweep import RunSpec, Scored, cases, document, simulate_run
from timely_llm.traces.model import Trace

PRESET = "wid2"
"""The robots' workload: drones at high load (Ling et al. 2024, Table 3)."""

BURSTS = 5
"""Bursts of a run."""

KEYS = ("workload", "load", "policy", "size")
MEASURES = (
    "utility",
    "utility_unclamped",
    "plan_attainment",
    "response_s",
    "longest_response_s",
    "waiting_s",
    "share_first",
    "share_finished",
)


@dataclass(frozen=True)
class UrgentOptions(WorkloadOptions):
    """Options of `urgent`.

    Attributes:
        sizes: urgent plans that are asked at once.
    """

    policies: tuple[str, ...] = (
        *("fcfs", "stream", "prio:rows=4", "prio:rows=8", "vtc", "slice"),
        *("timely", SERVED, UNBOUNDED, PAPER_BOUND, "deadline"),
    )
    sizes: tuple[int, ...] = (10, 20, 40)
    seeds: int = 3
    explain: bool = field(default=False, init=False)


def run(options: UrgentOptions, progress: ReportProgress) -> RunDocument:
    """Return the results of bursts of urgent plans under each policy, by size."""
    alone = cases(options, (PRESET,))
    specs = [_at_once(case, size) for size in options.sizes for case in alone]
    rows = run_all(score, specs, options.jobs, progress)
    return document(
        EXPERIMENT,
        options,
        [Scored(row, ()) for row in rows],
        keys=KEYS,
        measures=MEASURES,
        definitions={
            "size": f"urgent plans that are asked at once, {BURSTS} times, every {EVERY_S:g} s",
            "plan_attainment": servers.DEFINITIONS["plan_attainment"],
        },
    )


def urgent_bursts(trace: Trace, size: int) -> Trace:
    """Return a workload with bursts of the urgent jobs of another one, each of another robot.

    Jobs follow each other in the order of the workload, again from its first one after the last.

    Raises:
        ExperimentError: the workload has no urgent jobs.
    """
    urgent = [job for job in trace.jobs if job.urgent]
    if not urgent:
        raise ExperimentError(f"{trace.name} has no urgent plans")
    jobs = [
        replace(
            job,
            id=f"{place}.{job.id}",
            agent=f"robot_{place % size}",
            arrival_s=EVERY_S * (place // size),
        )
        for place, job in zip(range(BURSTS * size), cycle(urgent), strict=False)
    ]
    return replace(trace, jobs=tuple(jobs), conversations=())


def score(case: RunSpec) -> Row:
    """Run a case and return its row."""
    run = simulate_run(case)
    attainment = fmean(in_time(outcome) for outcome in run.outcomes)
    return plain({**plan_row(run, **case.names), "plan_attainment": attainment})


def _at_once(case: RunSpec, size: int) -> RunSpec:
    """Return a case with bursts, in which all requests count, and without a timeline."""
    return replace(
        case,
        trace=urgent_bursts(case.trace, size),
        settings=replace(case.settings, skip=0),
        names={**case.names, "size": size},
        timeline_s=0.0,
    )


EXPERIMENT = Experiment(
    name="urgent",
    question="Which urgent plans are in time when many robots ask at once?",
    run=run,
    defaults=UrgentOptions(),
)
