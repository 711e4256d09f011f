"""`slice-rate`: service levels met as tasks come faster (paper 000, Figure 11)."""

from __future__ import annotations

from timely_llm.experiments.contract import TALKS, Experiment, Options
from timely_llm.experiments.document import RunDocument
from timely_llm.experiments.papers_slice import FIGURE_11
from timely_llm.experiments.slice_sweep import defaults, document, sweep
from timely_llm.experiments.stage import Progress

RATES = (0.1, 0.5, 0.8, 1.0, 1.5, 2.0, 3.0, 5.0, 7.0)
"""Tasks a second. The paper has eight rates from the first to the last, and names half of them."""


def run(options: Options, progress: Progress) -> RunDocument:
    """Return what tasks get under each policy, by rate.

    Raises:
        TimelyError: something of the options is not possible.
    """
    return document(
        EXPERIMENT,
        options,
        sweep(options, progress),
        keys=("lengths", "bound", "rt_ratio", "policy", "rate"),
        papers=(FIGURE_11,),
    )


EXPERIMENT = Experiment(
    name="slice-rate",
    question="How many service levels are met as tasks come faster? (paper 000, Figure 11)",
    run=run,
    defaults=defaults(rates=RATES),
    understands=TALKS,
)
