"""`timelyllm-policies`: segments by arrival, deadline, utility (Ling et al. 2024, Figure 8)."""

from __future__ import annotations

from dataclasses import dataclass

from timely_llm.experiments.contract import Experiment, RealTimeOptions
from timely_llm.experiments.realtime import run as realtime
from timely_llm.experiments.results.document import RunDocument
from timely_llm.experiments.results.reported import FIGURE_8
from timely_llm.experiments.sweep import MEASURES, compared, document, sweep
from timely_llm.experiments.virtual.stage import Progress


@dataclass(frozen=True)
class PoliciesOptions(RealTimeOptions):
    """Options of `timelyllm-policies`."""

    policies: tuple[str, ...] = ("fcfs-segments", "edf", "timely", "deadline")
    loads: tuple[int, ...] = (1, 2, 4)


def run(options: PoliciesOptions, progress: Progress) -> RunDocument:
    """Return the results of segmented generation under each order of segments."""
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
    question="How much does the order of segments matter, if all policies generate in segments?"
    " (Ling et al. 2024, Figure 8)",
    run=run,
    defaults=PoliciesOptions(),
    real_time=PoliciesOptions(
        policies=("fcfs-segments", "edf", "timely", "deadline"), loads=(1,), seeds=1
    ),
)
