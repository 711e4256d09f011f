"""`pice-throughput`: six cloud models by method (Zhan et al. 2025, Table III)."""

from __future__ import annotations

from dataclasses import dataclass

from timely_llm.experiments.contract import Experiment, ReportProgress
from timely_llm.experiments.parallel import run_all
from timely_llm.experiments.results.document import RunDocument
from timely_llm.experiments.results.reported_sketches import ZHAN_TABLE_3
from timely_llm.experiments.virtual.sketches.score import (
    DEFINITIONS,
    MEASURES,
    VERSUS,
    SketchCase,
    SketchOptions,
    score,
    versus,
)
from timely_llm.experiments.virtual.sketches.setup import NOTES, POLICIES, PROFILE, setup
from timely_llm.experiments.virtual.sketches.testbed import FAR_MODELS, check_models

KEYS = ("model", "policy")
CLOUD = "cloud-only"


@dataclass(frozen=True)
class ThroughputOptions(SketchOptions):
    """Options of `pice-throughput`.

    Attributes:
        models: of the cloud, of `FAR_MODELS`.
    """

    policies: tuple[str, ...] = (
        CLOUD, "edge-only", "edge-only:rows=8", "routing", "skeleton", "speculative",
        "pice-static", "pice", "pice:merge=off", "sketches", "sketches:horizon_s=600",
    )  # fmt: skip
    models: tuple[str, ...] = tuple(FAR_MODELS)


def run(options: ThroughputOptions, progress: ReportProgress) -> RunDocument:
    """Return throughput and latency of each method with each cloud model.

    Raises:
        TimelyError: a method or a model is unknown.
    """
    check_models(options.models)
    cases = [
        SketchCase(policy, seed, {"model": model, "policy": policy}, model, minutes=options.minutes)
        for model in options.models
        for policy in options.policies
        for seed in options.each_seed
    ]
    rows = versus(run_all(score, cases, options.jobs, progress), KEYS, CLOUD)
    return EXPERIMENT.document(
        PROFILE,
        setup(options),
        keys=KEYS,
        measures=("throughput", "throughput_vs_cloud", "latency_s", "latency_vs_cloud",
                  *MEASURES[2:]),
        definitions={
            "model": "the cloud's; edges run smaller ones, but for `edge-only`, with which they run"
            " the same if they can",
            "policy": POLICIES,
            **DEFINITIONS,
            **VERSUS,
        },
        rows=tuple(rows),
        papers=(ZHAN_TABLE_3,),
        notes=NOTES,
    )  # fmt: skip


EXPERIMENT = Experiment(
    name="pice-throughput",
    question="How many questions a minute do a cloud and four edges answer, and how soon, by method"
    " and cloud model? (Zhan et al. 2025, Table III)",
    run=run,
    defaults=ThroughputOptions(),
)
