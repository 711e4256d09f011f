"""`timelyllm-drone`: utility, response and waiting by kind of task (Ling et al. 2024, Figure 5)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from timely_llm.experiments.contract import (
    Experiment,
    PaperOptions,
    RealTimeOptions,
    ReportProgress,
)
from timely_llm.experiments.policy_spec import PAPER_BOUND, SERVED
from timely_llm.experiments.realtime import run as realtime
from timely_llm.experiments.results.document import RunDocument
from timely_llm.experiments.results.metrics import UNBOUNDED, relative_definition, relative_gains
from timely_llm.experiments.results.reported import FIGURE_5
from timely_llm.experiments.sweep import KEYS, MEASURES, Scored, compared, document, sweep
from timely_llm.experiments.virtual.durations import NOISY

LOW, HIGH = "wid1", "wid2"
"""The workloads of Figure 5 (Ling et al. 2024, Table 3)."""

_TASKS = "Kinds of tasks have the numbers of Ling et al. 2024, Table 2; its Figure 5 counts from 0."

POLICIES = (
    *("fcfs", "fcfs:harness", "stream", "stream:harness"),
    *("timely", SERVED, UNBOUNDED, PAPER_BOUND, "timely:drops", "deadline"),
)
GAINS = {"urgent_gain_vs_fcfs": "fcfs", "urgent_gain_vs_harness": "fcfs:harness"}
"""Columns, and the policy that each compares with."""

UNCLAMPED = ("urgent_utility_unclamped", "normal_utility_unclamped")


@dataclass(frozen=True)
class DroneOptions(PaperOptions, RealTimeOptions):
    """Options of `timelyllm-drone`."""

    policies: tuple[str, ...] = POLICIES
    loads: tuple[int, ...] = (1, 2, 4)
    seeds: int = 3


def run(options: DroneOptions, progress: ReportProgress) -> RunDocument:
    """Return the results of drones under each policy, by load and by kind of task."""
    if options.engine != "simulated":
        return realtime.run(EXPERIMENT, options, (HIGH,), progress)
    scored = compared(sweep(options, (LOW, HIGH), progress), "urgent_utility", "fcfs")
    return document(
        EXPERIMENT,
        options,
        _with_gains(scored),
        measures=(*MEASURES[:3], *UNCLAMPED, *GAINS, *MEASURES[3:]),
        definitions={name: relative_definition(UNCLAMPED[0], over) for name, over in GAINS.items()},
        papers=() if options.trace else (FIGURE_5,),
        notes=() if options.trace else (_TASKS,),
    )


def _with_gains(scored: Iterable[Scored]) -> list[Scored]:
    """Return results with the columns of `GAINS`."""
    scored = list(scored)
    rows = [one.row for one in scored]
    for name, over in GAINS.items():
        rows = relative_gains(rows, KEYS, UNCLAMPED[0], over, name)
    return [replace(one, row=row) for one, row in zip(scored, rows, strict=True)]


EXPERIMENT = Experiment(
    name="timelyllm-drone",
    question="How are urgent and normal tasks of drones served under each policy, at low and high"
    " load? (Ling et al. 2024, Figure 5)",
    run=run,
    defaults=DroneOptions(),
    real_time=DroneOptions(
        policies=("fcfs", "stream", "timely", "deadline"),
        loads=(1,),
        seeds=1,
        durations=NOISY,
    ),
)
