"""`pice-options`: what depends on the numbers that Zhan et al. 2025 leaves open."""

from __future__ import annotations

from dataclasses import dataclass

from timely_llm.experiments.contract import Experiment, ReportProgress
from timely_llm.experiments.parallel import run_all
from timely_llm.experiments.results.document import RunDocument
from timely_llm.experiments.virtual.sketches.score import (
    DEFINITIONS,
    MEASURES,
    SketchCase,
    SketchOptions,
    score,
)
from timely_llm.experiments.virtual.sketches.setup import NOTES, POLICIES, PROFILE, setup

KEYS = ("policy",)


@dataclass(frozen=True)
class OpenOptions(SketchOptions):
    """Options of `pice-options`."""

    policies: tuple[str, ...] = (
        "pice",
        "pice:loaded=off",
        "pice:merge=off",
        "pice:larger=off",
        "pice:levels=10",
        "pice:least_share=0.2",
        "pice:least_share=0.6",
        "pice:margin_tokens=0",
        "pice:short_tokens=1",
        "pice:length_tokens=40",
        "pice:batch=1",
        "pice:batch=8",
        "pice:rows=1",
        "pice:rows=16",
        "routing:share=0.1",
        "routing:share=0.4",
        "routing:share=0.6",
        "routing:share=0.8",
        "sketches",
        "sketches:pipelined=off",
        "sketches:share=0.4",
        "sketches:horizon_s=60",
        "sketches:horizon_s=600",
        "sketches:token_price=0.001",
        "sketches:rows=1",
        "sketches:rows=16",
    )


def run(options: OpenOptions, progress: ReportProgress) -> RunDocument:
    """Return what each method gets with each option.

    Raises:
        TimelyError: a method is unknown.
    """
    cases = [
        SketchCase(policy, seed, {"policy": policy}, minutes=options.minutes)
        for policy in options.policies
        for seed in options.each_seed
    ]
    return EXPERIMENT.document(
        PROFILE,
        setup(options),
        keys=KEYS,
        measures=MEASURES,
        definitions={"policy": f"{POLICIES}, each with an option", **DEFINITIONS},
        rows=tuple(run_all(score, cases, options.jobs, progress)),
        notes=NOTES,
    )


EXPERIMENT = Experiment(
    name="pice-options",
    question="What depends on the numbers that Zhan et al. 2025 leaves open?",
    run=run,
    defaults=OpenOptions(),
)
