"""`pice-queue`: how many sketches may wait for an edge (Zhan et al. 2025, Figure 13)."""

from __future__ import annotations

from dataclasses import dataclass

from timely_llm.experiments.contract import Experiment, ReportProgress
from timely_llm.experiments.parallel import run_all
from timely_llm.experiments.results.document import RunDocument
from timely_llm.experiments.results.reported_sketches import ZHAN_FIGURE_13
from timely_llm.experiments.virtual.sketches.score import (
    DEFINITIONS,
    MEASURES,
    SketchCase,
    SketchOptions,
    score,
)
from timely_llm.experiments.virtual.sketches.setup import NOTES, POLICIES, PROFILE, setup

KEYS = ("queue", "policy")


@dataclass(frozen=True)
class QueueOptions(SketchOptions):
    """Options of `pice-queue`.

    Attributes:
        sizes: most sketches that wait; each is a run.
    """

    policies: tuple[str, ...] = ("pice", "pice:merge=off", "pice:rows=1:batch=1")
    sizes: tuple[int, ...] = (1, 2, 4, 8, 16, 32)


def run(options: QueueOptions, progress: ReportProgress) -> RunDocument:
    """Return what PICE gets with each length of its queue.

    Raises:
        TimelyError: a method is unknown, or has no queue.
    """
    cases = [
        SketchCase(
            f"{policy}:most_queued={most}", seed, {"queue": most, "policy": policy},
            minutes=options.minutes,
        )
        for most in options.sizes
        for policy in options.policies
        for seed in options.each_seed
    ]  # fmt: skip
    return EXPERIMENT.document(
        PROFILE,
        setup(options),
        keys=KEYS,
        measures=MEASURES,
        definitions={"queue": "most sketches that wait", "policy": POLICIES, **DEFINITIONS},
        rows=tuple(run_all(score, cases, options.jobs, progress)),
        papers=(ZHAN_FIGURE_13,),
        notes=NOTES,
    )


EXPERIMENT = Experiment(
    name="pice-queue",
    question="How many sketches should wait for an edge? (Zhan et al. 2025, Figure 13)",
    run=run,
    defaults=QueueOptions(),
)
