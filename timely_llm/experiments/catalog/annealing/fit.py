"""`annealing-fit`: orders by a latency predictor with errors (Huang et al. 2025, Figure 10)."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from timely_llm.engines.paces import step_time_profile
from timely_llm.experiments.catalog.annealing.order import OrderOptions
from timely_llm.experiments.contract import Experiment, ReportProgress
from timely_llm.experiments.parallel import run_all
from timely_llm.experiments.policy_spec import PolicySpec, chosen
from timely_llm.experiments.results.document import RunDocument
from timely_llm.experiments.results.metrics import MeasuredRow, plain
from timely_llm.experiments.results.reported import HUANG_FIGURE_10
from timely_llm.experiments.virtual.annealing_testbeds import predictor_of
from timely_llm.experiments.virtual.annealing_workload import (
    G_DEFINITIONS,
    WORKLOAD,
    ErroneousLengths,
    g_row,
    mixed,
    prepare,
    serve,
)
from timely_llm.policies.annealing.latency import LatencyPredictor
from timely_llm.policies.annealing.policy import Annealing

PARAMETERS = ("alpha", "beta", "gamma", "delta")
CHANGES = (-0.2, -0.1, -0.05, 0.05, 0.1, 0.2)
BATCH = 4


@dataclass(frozen=True)
class FitOptions(OrderOptions):
    """Options of `annealing-fit`."""

    policies: tuple[str, ...] = ("annealing:reset=on", "annealing:search=exact")
    sizes: tuple[int, ...] = field(default=(10,), init=False)


@dataclass(frozen=True)
class FitCase:
    """The runs of a seed: each parameter with each change."""

    spec: PolicySpec
    profile: str
    count: int
    seed: int


def run(options: FitOptions, progress: ReportProgress) -> RunDocument:
    """Return G with each coefficient of the predictor changed, over G with none changed."""
    cases = [
        FitCase(spec, options.profile, count, seed)
        for spec in chosen(options.policies)
        for count in options.sizes
        for seed in options.each_seed
    ]
    rows = [row for rows in run_all(score, cases, options.jobs, progress) for row in rows]
    return EXPERIMENT.document(
        options.profile,
        {"seeds": options.named_seeds, "batch": BATCH, "lengths": "known", "workload": WORKLOAD},
        keys=("policy", "parameter", "change"),
        measures=("g_vs_fitted", "g", "attainment", "latency_s"),
        definitions={
            **{name: G_DEFINITIONS[name] for name in ("requests", "g", "attainment", "latency_s")},
            "parameter": "the coefficient that is changed, of prefill and of decode",
            "change": "by this share of it",
            "g_vs_fitted": "G over that with the fitted coefficients, with the same seed",
        },
        rows=tuple(rows),
        papers=(HUANG_FIGURE_10,),
    )


def score(case: FitCase) -> list[MeasuredRow]:
    """Return the rows of a seed."""
    fitted = predictor_of(case.profile)
    base = _served(case, fitted)["g"]
    rows = []
    for parameter in PARAMETERS:
        for change in CHANGES:
            row = _served(case, changed(fitted, parameter, change))
            names = {"policy": case.spec.text, "parameter": parameter, "change": change}
            ratio = row["g"] / base if base else None
            rows.append(plain({**names, "seed": case.seed, **row, "g_vs_fitted": ratio}))
    return rows


def changed(predictor: LatencyPredictor, parameter: str, change: float) -> LatencyPredictor:
    """Return a predictor with one coefficient of both phases changed by a share of it."""
    phases = predictor.prefill, predictor.decode
    made = [replace(one, **{parameter: getattr(one, parameter) * (1.0 + change)}) for one in phases]
    return LatencyPredictor(*made)


def _served(case: FitCase, predictor: LatencyPredictor) -> MeasuredRow:
    policy, profile = case.spec.make(), step_time_profile(case.profile)
    trace = mixed(case.count, case.seed)
    prepare(policy, profile, case.seed)
    if isinstance(policy, Annealing):
        policy.predictor = predictor
        policy.output_lengths = ErroneousLengths(trace, 0.0, case.seed)
    return g_row(serve(trace, policy, profile, BATCH), requests=case.count)


EXPERIMENT = Experiment(
    name="annealing-fit",
    question="What do errors of the fitted coefficients cost an order by annealing?"
    " (Huang et al. 2025, Figure 10)",
    run=run,
    defaults=FitOptions(seeds=10),
)
