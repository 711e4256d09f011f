"""`annealing-search`: how good orders are, and what they cost (Huang et al. 2025, Table 1)."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from statistics import fmean, quantiles
from time import perf_counter

from timely_llm.experiments.catalog.annealing.order import OrderCase, OrderOptions, searches
from timely_llm.experiments.contract import Experiment, ExperimentError, ReportProgress
from timely_llm.experiments.parallel import run_all
from timely_llm.experiments.policy_spec import chosen
from timely_llm.experiments.results.document import Row, RunDocument
from timely_llm.experiments.results.metrics import plain
from timely_llm.experiments.results.reported import HUANG_FIGURE_8, HUANG_TABLE_1
from timely_llm.experiments.virtual.annealing_testbeds import predictor_of
from timely_llm.experiments.virtual.annealing_workload import (
    MOST_LABELLED,
    WORKLOAD,
    mixed,
    requests_of,
    search_at_length,
)
from timely_llm.policies.annealing.branches import MOST_NODES
from timely_llm.policies.annealing.objective import OrderProblem
from timely_llm.policies.annealing.policy import Annealing, Search
from timely_llm.policies.annealing.search import exact

SHAPES = ((4, 1), (6, 1), (8, 1), (10, 1), (6, 2), (8, 2), (6, 4), (8, 4), (20, 2), (40, 4))
"""(requests, largest batch): Table 1 has batches of one, Figure 8 10 in 1, 20 in 2 and 40 in 4."""

BRANCHED = ((10, 1), (20, 1), (30, 1), (20, 2))
"""The same for `search=branch`, which takes more requests than the exact search. It is not among
the policies by default: name it."""

INSTANCES = 20
"""Instances of each shape, for each seed."""

T0 = (100, 200, 500)
ITERATIONS = (50, 100, 200)
POLICIES = (
    "annealing:accept=literal",
    "annealing:accept=metropolis",
    "annealing:accept=metropolis:best=off:reset=on",
    "annealing",
    "annealing:accept=literal:reset=on",
    *(f"annealing:reset=on:t0={t0}:iterations={count}" for t0 in T0 for count in ITERATIONS),
    "annealing:search=exhaustive",
    "annealing:search=exact",
)
_OPTIMAL = 1 - 1e-9
_DEFINITIONS = {
    "requests": "requests of an instance, with known lengths",
    "batch": "most requests in a batch",
    "policy": "the search, in the notation of policies",
    "share_of_best": "G over that of the exact optimum, mean over instances",
    "median_share": "G over that of the exact optimum, median",
    "low_share": "G over that of the exact optimum, 10 % quantile",
    "worst_share": "G over that of the exact optimum, of the worst instance",
    "share_optimal": "share of the instances with the optimum",
    "g_gain": "G over that of the order of arrival in batches of the largest size, less 1, of means"
    " over instances",
    "evaluations": "orders, or parts of orders, that the search scored, mean",
    "proven": "share of the instances in which the search has proven that no order is better",
    "g_gain_on_start": "G over that of the annealing that branch and bound begins from, less 1,"
    " mean over instances",
    "most_gain_on_start": "the same, of the instance with the largest gain",
    "nodes": f"beginnings of orders that branch and bound looked at, mean; at most {MOST_NODES:,}",
    "milliseconds": "time of a search in this process, mean; it depends on the machine",
}


@dataclass(frozen=True)
class SearchOptions(OrderOptions):
    """Options of `annealing-search`.

    Attributes:
        policies: `annealing` with its options.
        sizes: of `SHAPES`, the numbers of requests that run.
    """

    policies: tuple[str, ...] = POLICIES
    sizes: tuple[int, ...] = tuple(dict.fromkeys(count for count, _ in SHAPES + BRANCHED))


def run(options: SearchOptions, progress: ReportProgress) -> RunDocument:
    """Return the distance of each search from the optimum, its evaluations and its time.

    The optimum is known of up to ten requests.
    """
    specs = chosen(options.policies, words=False)
    for spec in specs:
        if not isinstance(spec.make(), Annealing):
            raise ExperimentError(f"{spec.text} has no search: name annealing with its options")
    cases = [
        OrderCase(spec, options.profile, batch, count, seed)
        for count, batch in dict.fromkeys(SHAPES + BRANCHED)
        if count in options.sizes
        for spec in specs
        if (count, batch) in (BRANCHED if spec.values.get("search") == Search.BRANCH else SHAPES)
        for seed in options.each_seed
        if searches(spec, count, batch)
        and (count <= MOST_LABELLED or spec.values.get("search") != Search.EXACT)
    ]
    rows = run_all(score, cases, options.jobs, progress)
    return EXPERIMENT.document(
        options.profile,
        {"seeds": options.named_seeds, "instances of a seed": INSTANCES, "workload": WORKLOAD},
        keys=("batch", "requests", "policy"),
        measures=tuple(_DEFINITIONS)[3:],
        definitions=_DEFINITIONS,
        rows=tuple(rows),
        papers=(HUANG_TABLE_1, HUANG_FIGURE_8),
        notes=(
            "`annealing` without `reset=on` has 162 moves. Moves that change nothing, such as those"
            " into a full batch, are not scored. `reset=on` has 6,300 moves at `t0=500`.",
        ),
    )


def score(case: OrderCase) -> Row:
    """Return the row of a search: over instances with the seed."""
    shares, g, by_arrival, evaluations, seconds, proven = [], [], [], [], [], []
    gains, nodes = [], []
    predictor = predictor_of(case.profile)
    for number in range(INSTANCES):
        requests = requests_of(mixed(case.count, INSTANCES * case.seed + number))
        problem = OrderProblem.of(requests, predictor, case.batch)
        policy = case.spec.make()
        assert isinstance(policy, Annealing)
        search_at_length(policy)
        began_s = perf_counter()
        found = policy.find(requests, predictor, case.batch)
        seconds.append(perf_counter() - began_s)
        evaluations.append(found.evaluations)
        proven.append(found.proven)
        g.append(problem.score(found.order))
        if policy.search is Search.BRANCH:
            start = replace(policy, search=Search.ANNEALING).find(requests, predictor, case.batch)
            gains.append(g[-1] / start.score - 1.0)
            nodes.append(found.evaluations - start.evaluations)
        by_arrival.append(problem.score(problem.by_arrival))
        if case.count <= MOST_LABELLED:
            shares.append(g[-1] / exact(problem, found.order).score)
    return plain(
        {
            "batch": case.batch,
            "requests": case.count,
            "policy": case.spec.text,
            "seed": case.seed,
            "share_of_best": fmean(shares) if shares else math.nan,
            "median_share": quantiles(shares, n=2)[0] if shares else math.nan,
            "low_share": quantiles(shares, n=10)[0] if shares else math.nan,
            "worst_share": min(shares, default=math.nan),
            "share_optimal": fmean(s > _OPTIMAL for s in shares) if shares else math.nan,
            "g_gain": fmean(g) / fmean(by_arrival) - 1.0,
            "evaluations": fmean(evaluations),
            "proven": fmean(proven),
            "g_gain_on_start": fmean(gains) if gains else math.nan,
            "most_gain_on_start": max(gains, default=math.nan),
            "nodes": fmean(nodes) if nodes else math.nan,
            "milliseconds": 1e3 * fmean(seconds),
        }
    )


EXPERIMENT = Experiment(
    name="annealing-search",
    question="How far from the best order are searches, and what do they cost?"
    " (Huang et al. 2025, Table 1 and Figure 8)",
    run=run,
    defaults=SearchOptions(seeds=2),
)
