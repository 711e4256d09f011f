"""`bursts`: conversations that begin at once, beside plans of robots."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import islice

from timely_llm.experiments.catalog.mixed import MEASURES, POLICIES, PRESET, TALKS_ARE, score
from timely_llm.experiments.contract import (
    Experiment,
    ExperimentError,
    ReportProgress,
    WorkloadOptions,
)
from timely_llm.experiments.parallel import run_all
from timely_llm.experiments.results.document import RunDocument
from timely_llm.experiments.sweep import RunSpec, Scored, cases
from timely_llm.experiments.sweep import document as sweep_document
from timely_llm.experiments.virtual.slice_workload import Mix, talks
from timely_llm.traces.model import Conversation, Trace

SIZES = (20, 40, 60)
EVERY_S = 30.0
"""Seconds from one burst to the next."""

KEYS = ("workload", "load", "policy", "size")


@dataclass(frozen=True)
class BurstsOptions(WorkloadOptions):
    """Options of `bursts`.

    Attributes:
        sizes: conversations that begin at once.
    """

    policies: tuple[str, ...] = POLICIES
    sizes: tuple[int, ...] = SIZES
    explain: bool = field(default=False, init=False)


def run(options: BurstsOptions, progress: ReportProgress) -> RunDocument:
    """Return the results of plans and of bursts of conversations under each policy, by size."""
    alone = cases(options, (PRESET,))
    rows = run_all(
        score,
        [_beside(case, size) for size in options.sizes for case in alone],
        options.jobs,
        progress,
    )
    made = sweep_document(
        EXPERIMENT,
        options,
        [Scored(row, ()) for row in rows],
        keys=KEYS,
        measures=MEASURES,
        definitions={"size": f"conversations that begin at once, every {EVERY_S:g} s"},
    )
    return made.model_copy(update={"setup": {**made.setup, "conversations": TALKS_ARE}})


def with_bursts(trace: Trace, size: int, seed: int) -> Trace:
    """Return a workload with bursts of conversations in place of its own.

    The first burst comes with the first job. The last one comes before the last job.

    Raises:
        ExperimentError: the workload has no jobs.
    """
    if not trace.jobs:
        raise ExperimentError(f"{trace.name} has no plans to mix conversations with")
    first_s, last_s = trace.jobs[0].arrival_s, trace.jobs[-1].arrival_s
    bursts = int((last_s - first_s) // EVERY_S) + 1
    asked = islice(talks(Mix(1.0, rt_ratio=0.0), seed), bursts * size)
    people: list[Conversation] = [
        replace(talk, arrival_s=first_s + EVERY_S * (place // size))
        for place, talk in enumerate(asked)
    ]
    return replace(trace, conversations=tuple(people))


def _beside(case: RunSpec, size: int) -> RunSpec:
    trace = with_bursts(case.trace, size, case.settings.seed)
    return replace(case, trace=trace, names={**case.names, "size": size}, timeline_s=0.0)


EXPERIMENT = Experiment(
    name="bursts",
    question="Do plans keep their worth, and conversations their service levels, when many people"
    " ask at once?",
    run=run,
    defaults=BurstsOptions(),
)
