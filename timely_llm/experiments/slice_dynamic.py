"""`slice-dynamic`: what tasks get that come and go (paper 000, Figures 7, 8 and 9)."""

from __future__ import annotations

from timely_llm.experiments.contract import TALKS, Experiment, Options
from timely_llm.experiments.document import RunDocument
from timely_llm.experiments.metrics import plain, relative
from timely_llm.experiments.papers_slice import FIGURES_7_TO_9
from timely_llm.experiments.slice_sweep import MEASURES, defaults, document, sweep
from timely_llm.experiments.slice_workload import Lengths
from timely_llm.experiments.stage import Progress

SATURATING = "8-25:80-320"
"""Lengths with which the engine has about as much to do as it can, as in the paper."""

BASELINE = "slice"
KEYS = ("lengths", "bound", "rate", "rt_ratio", "policy")
COMPLETION = ("completion_s", "rt_completion_s", "nrt_completion_s")
RATIOS = tuple(f"{measure}_vs_{BASELINE}" for measure in COMPLETION)


def run(options: Options, progress: Progress) -> RunDocument:
    """Return what tasks get under each policy, and how long they take over those of SLICE.

    Raises:
        TimelyError: something of the options is not possible.
    """
    rows = sweep(options, progress)
    for measure in COMPLETION:
        rows = [plain(row) for row in relative(rows, KEYS, measure, BASELINE)]
    return document(
        EXPERIMENT,
        options,
        rows,
        keys=KEYS,
        measures=(*MEASURES[:5], *COMPLETION, *RATIOS, "max_gap_s", "share_served"),
        definitions={
            ratio: f"{measure} over that of {BASELINE} in the same setting, with the same seed"
            for ratio, measure in zip(RATIOS, COMPLETION, strict=True)
        },
        papers=(FIGURES_7_TO_9,),
    )


EXPERIMENT = Experiment(
    name="slice-dynamic",
    question="What do tasks that come and go get under each policy? (paper 000, Figures 7 to 9)",
    run=run,
    defaults=defaults(lengths=(str(Lengths()), SATURATING)),
    understands=TALKS,
)
