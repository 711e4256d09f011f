"""`pice-load`: questions come faster (Zhan et al. 2025, Figure 12)."""

from __future__ import annotations

from dataclasses import dataclass

from timely_llm.experiments.contract import Experiment, ReportProgress
from timely_llm.experiments.parallel import run_all
from timely_llm.experiments.results.document import RunDocument
from timely_llm.experiments.results.reported_sketches import ZHAN_FIGURE_12
from timely_llm.experiments.virtual.sketches.score import (
    DEFINITIONS,
    MEASURES,
    SketchCase,
    SketchOptions,
    score,
)
from timely_llm.experiments.virtual.sketches.setup import NOTES, POLICIES, PROFILE, setup

KEYS = ("rpm", "policy")


@dataclass(frozen=True)
class LoadOptions(SketchOptions):
    """Options of `pice-load`.

    Attributes:
        rates: questions a second; each is a run.
    """

    policies: tuple[str, ...] = (
        "cloud-only", "edge-only:rows=8", "routing", "pice", "pice:merge=off", "sketches",
        "sketches:alone=on",
    )  # fmt: skip
    rates: tuple[float, ...] = (1 / 12, 1 / 6, 1 / 4, 1 / 3, 1 / 2, 2 / 3, 1.0)


def run(options: LoadOptions, progress: ReportProgress) -> RunDocument:
    """Return what each method gets at each load.

    Raises:
        TimelyError: a method is unknown.
    """
    cases = [
        SketchCase(
            policy, seed, {"rpm": round(60 * rate, 1), "policy": policy}, rpm=60 * rate,
            minutes=options.minutes,
        )
        for rate in options.rates
        for policy in options.policies
        for seed in options.each_seed
    ]  # fmt: skip
    return EXPERIMENT.document(
        PROFILE,
        setup(options),
        keys=KEYS,
        measures=(*MEASURES, "stalled_s"),
        definitions={"rpm": "questions a minute", "policy": POLICIES, **DEFINITIONS},
        rows=tuple(run_all(score, cases, options.jobs, progress)),
        papers=(ZHAN_FIGURE_12,),
        notes=NOTES,
    )


EXPERIMENT = Experiment(
    name="pice-load",
    question="What do sketches gain as questions come faster? (Zhan et al. 2025, Figure 12)",
    run=run,
    defaults=LoadOptions(),
)
