"""`annealing-lengths`: orders by lengths of different accuracy (Huang et al. 2025, Figure 9).

With `figures` it has the testbeds of Figures 12 to 18.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from timely_llm.experiments.catalog.annealing.order import (
    BASELINE,
    BATCHES,
    GAINS,
    LINEARISED,
    FigureOptions,
    compared,
)
from timely_llm.experiments.contract import Experiment, ReportProgress
from timely_llm.experiments.parallel import run_all
from timely_llm.experiments.results.document import RunDocument
from timely_llm.experiments.results.metrics import MeasuredRow, relative_gains
from timely_llm.experiments.results.reported import HUANG_FIGURE_9, HUANG_FIGURES_12_TO_18
from timely_llm.experiments.virtual.annealing_testbeds import profile_of
from timely_llm.experiments.virtual.annealing_workload import (
    G_DEFINITIONS,
    WORKLOAD,
    ErroneousLengths,
    g_row,
    mixed,
    prepare,
    serve,
)
from timely_llm.policies.annealing.policy import Annealing
from timely_llm.policies.registry import make_policy

ANNEALING = "annealing:reset=on"
LENGTHS = ("gaussian", "quantile", "10%", "5%", "2.5%", "0%")
"""Learned lengths, and true ones with an error of up to this share."""


@dataclass(frozen=True)
class LengthErrorOptions(FigureOptions):
    """Options of `annealing-lengths`."""

    policies: tuple[str, ...] = field(default=(BASELINE, ANNEALING), init=False)
    sizes: tuple[int, ...] = (10, 20, 40)


@dataclass(frozen=True)
class LengthCase:
    """One run: the known lengths, the largest batch, the number of requests, a seed, a figure."""

    lengths: str
    profile: str
    batch: int
    count: int
    seed: int
    figure: int | None = None


def run(options: LengthErrorOptions, progress: ReportProgress) -> RunDocument:
    """Return G by the accuracy of the predicted lengths, beside that of no order."""
    cases = [
        LengthCase(lengths, options.profile, batch, count, seed, figure)
        for figure in options.figures or (None,)
        for batch in BATCHES
        for count in options.sizes
        for lengths in (BASELINE, *LENGTHS)
        for seed in options.each_seed
    ]
    rows = run_all(score, cases, options.jobs, progress)
    rows = relative_gains(rows, options.keys, "g", "gaussian", "g_gain_vs_gaussian")
    return EXPERIMENT.document(
        options.profile,
        {
            "seeds": options.named_seeds,
            "annealing": ANNEALING,
            "step times": options.step_times,
            "workload": WORKLOAD,
        },
        keys=options.keys,
        measures=(
            "g", "g_gain", "g_gain_vs_gaussian", "attainment", "attainment_points",
            "attainment_gain", "latency_s", "latency_gain", "latency_change",
        ),
        definitions={
            **options.definitions,
            **G_DEFINITIONS,
            **GAINS,
            "policy": "fcfs, or how annealing predicts lengths: draws from a Gaussian, the median"
            " of earlier answers, or the true length with a uniform error of up to this share",
            "g_gain_vs_gaussian": "G over that of draws from a Gaussian, less 1, of means over the"
            " seeds, which are paired",
        },
        rows=compared(rows, options.keys),
        papers=(HUANG_FIGURES_12_TO_18 if options.figures else HUANG_FIGURE_9,),
        notes=(LINEARISED, *options.sources),
    )  # fmt: skip


def score(case: LengthCase) -> MeasuredRow:
    """Return the row of a run."""
    profile, trace = profile_of(case.profile, case.figure), mixed(case.count, case.seed)
    if case.lengths == BASELINE:
        policy = make_policy(BASELINE)
    elif case.lengths.endswith("%"):
        policy = make_policy("annealing", reset=True)
        assert isinstance(policy, Annealing)
        error = float(case.lengths[:-1]) / 100
        policy.output_lengths = ErroneousLengths(trace, error, case.seed)
    else:
        policy = make_policy("annealing", reset=True, lengths=case.lengths)
    prepare(policy, profile, case.seed)
    ran = serve(trace, policy, profile, case.batch)
    return g_row(
        ran, figure=case.figure, batch=case.batch, requests=case.count, policy=case.lengths,
        seed=case.seed,
    )  # fmt: skip


EXPERIMENT = Experiment(
    name="annealing-lengths",
    question="What are better predictions of lengths worth to an order by annealing?"
    " (Huang et al. 2025, Figure 9)",
    run=run,
    defaults=LengthErrorOptions(),
)
