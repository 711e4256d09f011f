"""`slice-lengths`: lengths of answers with which Orca reaches what Zhou et al. 2025 reports of it.

The paper does not say how long its answers are. Its text states what Orca reaches at one task a
second (Figures 7 to 9): 0.3125 of all SLOs, 0.26 of real-time tasks, 0.41 of others. The procedure:

1. The candidates are fixed before a run: the grid of `REAL_TIME` and `OTHERS`.
2. Each candidate runs under Orca alone. No other policy is run, and none of SLICE's numbers is
   read.
3. The distance of a candidate is the root mean square of the three differences from the paper's
   shares, each share a mean over the seeds.
4. The candidate with the least distance is chosen. It is then given to other experiments as
   `--lengths` and is not touched again, whatever other policies reach with it.

Orca's shares depend on the step times too: each profile has a choice of its own.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from statistics import fmean

from timely_llm.experiments.contract import Experiment, ReportProgress
from timely_llm.experiments.results.document import Row, RunDocument
from timely_llm.experiments.results.reported import FIGURES_7_TO_9
from timely_llm.experiments.virtual.slice_sweep import KEY_DEFINITIONS, TaskOptions, document, sweep

POLICY = "orca"
REAL_TIME = ("8-25", "10-20", "12-18", "14-22", "15-30")
OTHERS = ("40-160", "80-320", "120-360", "160-400")
CANDIDATES = tuple(f"{machines}:{others}" for machines in REAL_TIME for others in OTHERS)
"""Short to long, narrow to wide; most of them load the engine at one task a second."""

(_PAPER,) = (row for row in FIGURES_7_TO_9.rows if row["policy"] == POLICY)
SHARES = ("attainment", "rt_attainment", "nrt_attainment")
TARGET: Mapping[str, float] = {name: float(_PAPER[name] or 0.0) for name in SHARES}
"""Orca's shares in the text of the paper."""

KEYS = (*(key for key in KEY_DEFINITIONS if key != "lengths"), "policy", "lengths")


@dataclass(frozen=True)
class LengthsOptions(TaskOptions):
    """Options of `slice-lengths`."""

    policies: tuple[str, ...] = field(default=(POLICY,), init=False)
    trace: None = field(default=None, init=False)
    lengths: tuple[str, ...] = CANDIDATES


def run(options: LengthsOptions, progress: ReportProgress) -> RunDocument:
    """Return Orca's shares with each candidate, and their distance from the paper's."""
    rows = sweep(options, progress)
    found = distances(rows)
    best = min(found, key=found.__getitem__)
    made = document(
        EXPERIMENT,
        options,
        [{**row, "distance": found[str(row["lengths"])]} for row in rows],
        keys=KEYS,
        measures=(*SHARES, "ttft_attainment", "tpot_attainment", "distance"),
        definitions={
            "distance": "root mean square of the differences of the three shares, means over the"
            " seeds, from those that the paper states of Orca"
        },
        papers=(FIGURES_7_TO_9,),
    )
    note = (
        f"The candidate closest to the paper's Orca is {best}, at a distance of {found[best]:.3f}."
        " No other policy took part in the choice."
    )
    return made.model_copy(update={"notes": (*made.notes, note)})


def distances(rows: Iterable[Row]) -> dict[str, float]:
    """Return the distance of each candidate from the paper's shares of Orca.

    Args:
        rows: with the columns `lengths` and those of `SHARES`, one for each seed.
    """
    by_lengths: dict[str, list[Row]] = {}
    for row in rows:
        by_lengths.setdefault(str(row["lengths"]), []).append(row)
    return {
        lengths: math.sqrt(fmean((_mean(of, name) - share) ** 2 for name, share in TARGET.items()))
        for lengths, of in by_lengths.items()
    }


def _mean(rows: Iterable[Row], name: str) -> float:
    return fmean(float(row[name] or 0.0) for row in rows)


EXPERIMENT = Experiment(
    name="slice-lengths",
    question="With which lengths of answers does Orca reach what the paper reports of it?"
    " (Zhou et al. 2025, Figures 7 to 9)",
    run=run,
    defaults=LengthsOptions(),
    reasons={"trace": "since it searches the lengths of its own answers"},
)
