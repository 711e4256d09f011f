"""`slice-ratio`: service levels met with more or fewer real-time tasks (paper 000, Figure 10)."""

from __future__ import annotations

from timely_llm.experiments.contract import TALKS, Experiment, Options
from timely_llm.experiments.document import RunDocument
from timely_llm.experiments.papers_slice import FIGURE_10
from timely_llm.experiments.slice_sweep import defaults, document, sweep
from timely_llm.experiments.stage import Progress

RATIOS = tuple(tenths / 10 for tenths in range(1, 10))


def run(options: Options, progress: Progress) -> RunDocument:
    """Return what tasks get under each policy, by the share of real-time tasks.

    Raises:
        TimelyError: something of the options is not possible.
    """
    return document(
        EXPERIMENT,
        options,
        sweep(options, progress),
        keys=("lengths", "bound", "rate", "policy", "rt_ratio"),
        papers=(FIGURE_10,),
    )


EXPERIMENT = Experiment(
    name="slice-ratio",
    question="How many service levels are met with more or fewer real-time tasks?"
    " (paper 000, Figure 10)",
    run=run,
    defaults=defaults(ratios=RATIOS),
    understands=TALKS,
)
