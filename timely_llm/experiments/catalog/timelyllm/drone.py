"""`timelyllm-drone`: utility, response and waiting by kind of task (Ling et al. 2024, Figure 5)."""

from __future__ import annotations

from dataclasses import dataclass

from timely_llm.experiments.contract import Experiment, RealTimeOptions
from timely_llm.experiments.realtime import run as realtime
from timely_llm.experiments.results.document import RunDocument
from timely_llm.experiments.results.reported import FIGURE_5
from timely_llm.experiments.sweep import MEASURES, compared, document, sweep
from timely_llm.experiments.virtual.stage import Progress

LOW, HIGH = "wid1", "wid2"
"""The workloads of Figure 5 (Ling et al. 2024, Table 3)."""

_TASKS = "Kinds of tasks have the numbers of Ling et al. 2024, Table 2; its Figure 5 counts from 0."

POLICIES = ("fcfs", "stream", "timely", "timely:drops", "deadline")


@dataclass(frozen=True)
class DroneOptions(RealTimeOptions):
    """Options of `timelyllm-drone`."""

    policies: tuple[str, ...] = POLICIES
    loads: tuple[int, ...] = (1, 2, 4)


def run(options: DroneOptions, progress: Progress) -> RunDocument:
    """Return the results of drones under each policy, by load and by kind of task."""
    if options.engine != "simulated":
        return realtime.run(EXPERIMENT, options, (HIGH,), progress)
    scored = compared(sweep(options, (LOW, HIGH), progress), "urgent_utility", "fcfs")
    return document(
        EXPERIMENT,
        options,
        scored,
        measures=(*MEASURES, "urgent_utility_vs_fcfs"),
        papers=() if options.trace else (FIGURE_5,),
        notes=() if options.trace else (_TASKS,),
    )


EXPERIMENT = Experiment(
    name="timelyllm-drone",
    question="How are urgent and normal tasks of drones served under each policy, at low and high"
    " load? (Ling et al. 2024, Figure 5)",
    run=run,
    defaults=DroneOptions(),
    real_time=DroneOptions(policies=("fcfs", "stream", "timely", "deadline"), loads=(1,), seeds=1),
)
