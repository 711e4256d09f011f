"""`timelyllm-drone`: utility, response and waiting by kind of task (paper 001, Figure 5)."""

from __future__ import annotations

from timely_llm.experiments import realtime
from timely_llm.experiments.contract import Experiment, Options
from timely_llm.experiments.document import RunDocument
from timely_llm.experiments.papers import FIGURE_5
from timely_llm.experiments.stage import Progress
from timely_llm.experiments.sweep import MEASURES, compared, document, sweep

LOW, HIGH = "wid1", "wid2"
"""The workloads of Figure 5 (paper 001, Table 3)."""

_TASKS = "Kinds of tasks are numbered as in paper 001, Table 2; its Figure 5 counts them from 0."

POLICIES = ("fcfs", "stream", "timely", "timely:drops", "deadline")


def run(options: Options, progress: Progress) -> RunDocument:
    """Return what drones get under each policy, by load and by kind of task.

    Raises:
        TimelyError: something of the options is not possible.
    """
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
    question="What do urgent and normal tasks of drones get under each policy, at low and high"
    " load? (paper 001, Figure 5)",
    run=run,
    defaults=Options(policies=POLICIES, loads=(1, 2, 4)),
    real_time=Options(policies=("fcfs", "stream", "timely", "deadline"), loads=(1,), seeds=1),
)
