"""`slice-dynamic`: service of tasks that arrive over time (Zhou et al. 2025, Figures 7 to 9)."""

from __future__ import annotations

from dataclasses import dataclass

from timely_llm.experiments.contract import Experiment, ReportProgress
from timely_llm.experiments.results.document import RunDocument
from timely_llm.experiments.results.metrics import plain, relative
from timely_llm.experiments.results.reported import FIGURES_7_TO_9
from timely_llm.experiments.virtual.slice_sweep import (
    CALIBRATED,
    MEASURES,
    TaskOptions,
    document,
    sweep,
)
from timely_llm.experiments.virtual.slice_workload import LengthRange

BASELINE = "slice"
KEYS = ("lengths", "bound", "rate", "rt_ratio", "policy")
COMPLETION = ("completion_s", "rt_completion_s", "nrt_completion_s")
RATIOS = tuple(f"{measure}_vs_{BASELINE}" for measure in COMPLETION)


@dataclass(frozen=True)
class DynamicOptions(TaskOptions):
    """Options of `slice-dynamic`: calibrated lengths, and short ones that load it little."""

    lengths: tuple[str, ...] = (CALIBRATED, str(LengthRange()))


def run(options: DynamicOptions, progress: ReportProgress) -> RunDocument:
    """Return the results of tasks under each policy, and completion times relative to SLICE."""
    rows = sweep(options, progress)
    for measure in COMPLETION:
        rows = [plain(row) for row in relative(rows, KEYS, measure, BASELINE)]
    return document(
        EXPERIMENT,
        options,
        rows,
        keys=KEYS,
        measures=(*MEASURES[:7], *COMPLETION, *RATIOS, *MEASURES[-5:]),
        definitions={
            ratio: f"{measure} over that of {BASELINE} in the same setting, with the same seed"
            for ratio, measure in zip(RATIOS, COMPLETION, strict=True)
        },
        papers=(FIGURES_7_TO_9,),
    )


EXPERIMENT = Experiment(
    name="slice-dynamic",
    question="What do tasks that come and go get under each policy?"
    " (Zhou et al. 2025, Figures 7 to 9)",
    run=run,
    defaults=DynamicOptions(),
)
