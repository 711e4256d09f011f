"""`timelyllm-policies`: orders of segments, by arrival, by deadline, by worth (001, Figure 8)."""

from __future__ import annotations

from timely_llm.experiments import realtime
from timely_llm.experiments.contract import Experiment, Options
from timely_llm.experiments.document import RunDocument
from timely_llm.experiments.papers import FIGURE_8
from timely_llm.experiments.stage import Progress
from timely_llm.experiments.sweep import MEASURES, compared, document, sweep


def run(options: Options, progress: Progress) -> RunDocument:
    """Return what segmented generation earns under each order.

    Raises:
        TimelyError: something of the options is not possible.
    """
    if options.engine != "simulated":
        return realtime.run(EXPERIMENT, options, ("wid2",), progress)
    scored = compared(sweep(options, ("wid2",), progress), "urgent_utility", "timely")
    return document(
        EXPERIMENT,
        options,
        scored,
        measures=(*MEASURES, "urgent_utility_vs_timely"),
        papers=() if options.trace else (FIGURE_8,),
    )


EXPERIMENT = Experiment(
    name="timelyllm-policies",
    question="If plans are made in segments anyway, what does it matter whose segment is next?"
    " (paper 001, Figure 8)",
    run=run,
    defaults=Options(policies=("fcfs-segments", "edf", "timely", "deadline"), loads=(1, 2, 4)),
    real_time=Options(policies=("fcfs-segments", "edf", "timely", "deadline"), loads=(1,), seeds=1),
)
