"""`annealing-order`: requests of two service levels at once (Huang et al. 2025, Figure 7)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from timely_llm.engines.simulated import step_time_profile
from timely_llm.experiments.contract import Experiment, SeedOptions
from timely_llm.experiments.parallel import run_all
from timely_llm.experiments.policy_spec import PolicySpec, chosen
from timely_llm.experiments.results.document import RunDocument
from timely_llm.experiments.results.metrics import Row, relative_gains
from timely_llm.experiments.results.reported import HUANG_FIGURE_7
from timely_llm.experiments.virtual.annealing_workload import (
    G_DEFINITIONS,
    PROFILE,
    WORKLOAD,
    g_row,
    mixed,
    prepare,
    serve,
)
from timely_llm.experiments.virtual.stage import Progress
from timely_llm.policies.annealing.policy import MOST_TRIED

BATCHES = (1, 2, 4)
POLICIES = (
    "fcfs",
    "sjf",
    "annealing:search=deadline",
    "annealing:accept=literal",
    "annealing",
    "annealing:reset=on",
    "annealing:reset=on:static=off",
    "annealing:reset=on:lengths=quantile",
    "annealing:reset=on:lengths=quantile:objective=worth:static=off",
    "annealing:search=exhaustive",
    "annealing:search=exact",
    "deadline",
)
KEYS = ("batch", "requests", "policy")
BASELINE = "fcfs"
_DEFINITIONS = {
    "g_gain": f"G over that of {BASELINE}, less 1, of means over the seeds",
    "latency_gain": f"latency over that of {BASELINE}, less 1, of means over the seeds",
    "attainment_points": f"attainment less that of {BASELINE}, with the same seed",
}
NOTES = (
    "Searches know predicted lengths, a draw from the Gaussian of 200 earlier answers of the type"
    " unless the policy says `lengths=quantile`. So the best order of the search is not the best"
    " order of the true lengths.",
    "Batches are static (Huang et al. 2025, Eq. 11) under `annealing` unless the policy says"
    " `static=off`, and continuous under the other policies.",
    "`deadline` and `fcfs` have learned no lengths before.",
)


@dataclass(frozen=True)
class OrderOptions(SeedOptions):
    """Options of `annealing-order`.

    Attributes:
        policies: in the notation of `policy_spec`.
        profile: name of the step-time profile.
        sizes: requests that come at once.
        jobs: processes that run at once.
    """

    policies: tuple[str, ...] = POLICIES
    profile: str = PROFILE
    sizes: tuple[int, ...] = (4, 6, 8, 10)
    jobs: int = 2


@dataclass(frozen=True)
class OrderCase:
    """One run: a policy, the largest batch, the number of requests, and a seed."""

    spec: PolicySpec
    profile: str
    batch: int
    count: int
    seed: int


def run(options: OrderOptions, progress: Progress) -> RunDocument:
    """Return G and its parts under each policy, by batch and number of requests.

    All requests come at once. Exhaustive search takes part up to the size that it searches.
    """
    cases = [
        OrderCase(spec, options.profile, batch, count, seed)
        for batch in BATCHES
        for count in options.sizes
        for spec in chosen(options.policies)
        for seed in options.each_seed
        if searches(spec, count, batch)
    ]
    rows = run_all(score, cases, options.jobs, progress)
    rows = relative_gains(rows, KEYS, "g", BASELINE, "g_gain")
    rows = relative_gains(rows, KEYS, "latency_s", BASELINE, "latency_gain")
    profile = step_time_profile(options.profile)
    return EXPERIMENT.document(
        options.profile,
        {"seeds": options.named_seeds, "step times": profile.source, "workload": WORKLOAD},
        keys=KEYS,
        measures=(
            "g", "g_gain", "attainment", "attainment_points", "chat_attainment", "latency_s",
            "latency_gain",
        ),
        definitions={**G_DEFINITIONS, **_DEFINITIONS},
        rows=tuple(_with_points(rows)),
        papers=(HUANG_FIGURE_7,),
        notes=NOTES,
    )  # fmt: skip


def searches(spec: PolicySpec, count: int, batch: int) -> bool:
    """Return whether a policy is run: exhaustive search for few requests only, as in the paper."""
    return spec.values.get("search") != "exhaustive" or count <= (MOST_TRIED if batch == 1 else 6)


def _with_points(rows: Sequence[Row]) -> Iterator[Row]:
    """Yield rows with the column `attainment_points`."""
    names = ("batch", "requests", "seed")
    base = {
        tuple(row[name] for name in names): row["attainment"]
        for row in rows
        if row["policy"] == BASELINE
    }
    for row in rows:
        theirs = base.get(tuple(row[name] for name in names))
        points = None if theirs is None else row["attainment"] - theirs
        yield {**row, "attainment_points": points}


def score(case: OrderCase) -> Row:
    """Return the row of a run."""
    policy, profile = case.spec.make(), step_time_profile(case.profile)
    prepare(policy, profile, case.seed)
    ran = serve(mixed(case.count, case.seed), policy, profile, case.batch)
    return g_row(ran, batch=case.batch, requests=case.count, policy=case.spec.text, seed=case.seed)


EXPERIMENT = Experiment(
    name="annealing-order",
    question="What does an order by annealing gain when requests of two service levels come at"
    " once? (Huang et al. 2025, Figure 7)",
    run=run,
    defaults=OrderOptions(),
)
