"""`annealing-lengths`: orders by lengths of different accuracy (Huang et al. 2025, Figure 9)."""

from __future__ import annotations

from dataclasses import dataclass, field

from timely_llm.engines.simulated import step_time_profile
from timely_llm.experiments.catalog.annealing.order import BATCHES, OrderOptions
from timely_llm.experiments.contract import Experiment
from timely_llm.experiments.parallel import run_all
from timely_llm.experiments.results.document import RunDocument
from timely_llm.experiments.results.metrics import Row, relative_gains
from timely_llm.experiments.results.reported import HUANG_FIGURE_9
from timely_llm.experiments.virtual.annealing_workload import (
    G_DEFINITIONS,
    WORKLOAD,
    ErroneousLengths,
    g_row,
    mixed,
    prepare,
    serve,
)
from timely_llm.experiments.virtual.stage import Progress
from timely_llm.policies.annealing.policy import Annealing
from timely_llm.policies.registry import make_policy

ANNEALING = "annealing:reset=on"
LENGTHS = ("gaussian", "quantile", "10%", "5%", "2.5%", "0%")
"""Learned lengths, and true ones with an error of up to this share."""

KEYS = ("batch", "requests", "policy")


@dataclass(frozen=True)
class LengthErrorOptions(OrderOptions):
    """Options of `annealing-lengths`."""

    policies: tuple[str, ...] = field(default=("fcfs", ANNEALING), init=False)
    sizes: tuple[int, ...] = (10, 20, 40)


@dataclass(frozen=True)
class LengthCase:
    """One run: the lengths that are known, the largest batch, the number of requests, a seed."""

    lengths: str
    profile: str
    batch: int
    count: int
    seed: int


def run(options: LengthErrorOptions, progress: Progress) -> RunDocument:
    """Return G by the accuracy of the predicted lengths, beside that of no order."""
    cases = [
        LengthCase(lengths, options.profile, batch, count, seed)
        for batch in BATCHES
        for count in options.sizes
        for lengths in ("fcfs", *LENGTHS)
        for seed in options.each_seed
    ]
    rows = run_all(score, cases, options.jobs, progress)
    for base, name in (("fcfs", "g_gain"), ("gaussian", "g_gain_vs_gaussian")):
        rows = relative_gains(rows, KEYS, "g", base, name)
    return EXPERIMENT.document(
        options.profile,
        {"seeds": options.named_seeds, "annealing": ANNEALING, "workload": WORKLOAD},
        keys=KEYS,
        measures=("g", "g_gain", "g_gain_vs_gaussian", "attainment", "latency_s"),
        definitions={
            **G_DEFINITIONS,
            "policy": "fcfs, or how annealing predicts lengths: draws from a Gaussian, the median"
            " of earlier answers, or the true length with a uniform error of up to this share",
            "g_gain": "G over that of fcfs, less 1, of means over the seeds",
            "g_gain_vs_gaussian": "the same, over draws from a Gaussian",
        },
        rows=tuple(rows),
        papers=(HUANG_FIGURE_9,),
    )


def score(case: LengthCase) -> Row:
    """Return the row of a run."""
    profile, trace = step_time_profile(case.profile), mixed(case.count, case.seed)
    if case.lengths == "fcfs":
        policy = make_policy("fcfs")
    elif case.lengths.endswith("%"):
        policy = make_policy("annealing", reset=True)
        assert isinstance(policy, Annealing)
        error = float(case.lengths[:-1]) / 100
        policy.output_lengths = ErroneousLengths(trace, error, case.seed)
    else:
        policy = make_policy("annealing", reset=True, lengths=case.lengths)
    prepare(policy, profile, case.seed)
    ran = serve(trace, policy, profile, case.batch)
    return g_row(ran, batch=case.batch, requests=case.count, policy=case.lengths, seed=case.seed)


EXPERIMENT = Experiment(
    name="annealing-lengths",
    question="What are better predictions of lengths worth to an order by annealing?"
    " (Huang et al. 2025, Figure 9)",
    run=run,
    defaults=LengthErrorOptions(),
)
