"""`pice-bandwidth`: slow links between edges and cloud (Zhan et al. 2025, Figure 14)."""

from __future__ import annotations

from dataclasses import dataclass

from timely_llm.cloud.simulated import CloudPath
from timely_llm.experiments.contract import Experiment, ReportProgress
from timely_llm.experiments.parallel import run_all
from timely_llm.experiments.results.document import RunDocument
from timely_llm.experiments.results.reported_sketches import ZHAN_FIGURE_14
from timely_llm.experiments.virtual.sketches.score import (
    DEFINITIONS,
    MEASURES,
    SketchCase,
    SketchOptions,
    score,
)
from timely_llm.experiments.virtual.sketches.setup import NOTES, POLICIES, PROFILE, setup
from timely_llm.experiments.virtual.sketches.testbed import PATH

KEYS = ("mbit", "policy")


@dataclass(frozen=True)
class BandwidthOptions(SketchOptions):
    """Options of `pice-bandwidth`.

    Attributes:
        bandwidths: of the link to the cloud, Mbit/s; each is a run.
    """

    policies: tuple[str, ...] = ("cloud-only", "routing", "pice", "sketches")
    bandwidths: tuple[float, ...] = (1.0, 10.0, 100.0, 1000.0)


def run(options: BandwidthOptions, progress: ReportProgress) -> RunDocument:
    """Return what each method gets over each link.

    Raises:
        TimelyError: a method is unknown.
    """
    cases = [
        SketchCase(
            policy, seed, {"mbit": mbit, "policy": policy}, minutes=options.minutes,
            path=CloudPath(PATH.rtt_s, mbit),
        )
        for mbit in options.bandwidths
        for policy in options.policies
        for seed in options.each_seed
    ]  # fmt: skip
    return EXPERIMENT.document(
        PROFILE,
        {**setup(options), "round trip to the cloud (s)": PATH.rtt_s},
        keys=KEYS,
        measures=MEASURES,
        definitions={"mbit": "of the link to the cloud", "policy": POLICIES, **DEFINITIONS},
        rows=tuple(run_all(score, cases, options.jobs, progress)),
        papers=(ZHAN_FIGURE_14,),
        notes=NOTES,
    )


EXPERIMENT = Experiment(
    name="pice-bandwidth",
    question="What does a slow link to the cloud cost sketches? (Zhan et al. 2025, Figure 14)",
    run=run,
    defaults=BandwidthOptions(),
)
