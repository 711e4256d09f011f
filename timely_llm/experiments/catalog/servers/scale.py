"""`servers-scale`: n equal servers at n times the load of one (Huang et al. 2025, Figure 11)."""

from __future__ import annotations

from dataclasses import dataclass, replace

from timely_llm.dispatch.assign.registry import DEFAULT_DISPATCHER
from timely_llm.experiments.contract import Experiment, ExperimentError, ReportProgress
from timely_llm.experiments.parallel import run_all
from timely_llm.experiments.results import metrics
from timely_llm.experiments.results.document import Row, RowValue, RunDocument
from timely_llm.experiments.results.metrics import plain
from timely_llm.experiments.results.servers import DEFINITIONS, servers_row
from timely_llm.experiments.virtual.crowd import (
    MINUTES,
    PRESET,
    ROBOTS,
    CrowdOptions,
    ServersCase,
    check,
    crowd,
    group,
    groups,
    servers_of,
    simulate_case,
)
from timely_llm.experiments.virtual.outcome import Run
from timely_llm.policies.registry import DEFAULT_POLICY

COPIES, GROUPS = "copies", "groups"
MOST_SERVERS = 64
BASELINE = "fcfs"
KEYS = ("robots", "servers", "policy", "dispatcher")
MEASURES = (
    "utility",
    "utility_vs_one",
    "urgent_utility",
    "plan_attainment",
    "goodput",
    f"goodput_vs_{BASELINE}",
    "waiting_s",
    "share_finished",
)
ROBOTS_ARE = {
    COPIES: "each request of one server's robots is asked by n robots, 0.2 ms apart, as the paper"
    " replicates its requests",
    GROUPS: f"n groups of {ROBOTS} robots, each with events of its own",
}


@dataclass(frozen=True)
class ScaleOptions(CrowdOptions):
    """Options of `servers-scale`.

    Attributes:
        servers: numbers of servers.
    """

    policies: tuple[str, ...] = (DEFAULT_POLICY,)
    dispatchers: tuple[str, ...] = ("round-robin", DEFAULT_DISPATCHER)
    servers: tuple[int, ...] = (1, 2, 3, 4, 8, 16, 32, 64)
    seeds: int = 2


@dataclass(frozen=True)
class ScaleCase:
    """One run: a number of servers, their robots, and how these differ."""

    options: ScaleOptions
    robots: str
    servers: int
    policy: str
    dispatcher: str
    seed: int


def run(options: ScaleOptions, progress: ReportProgress) -> RunDocument:
    """Return what a request is worth at n servers with n times the load.

    Raises:
        TimelyError: there are too many servers, a policy or a dispatcher is unknown, or the trace
            is not possible.
    """
    if max(options.servers) > MOST_SERVERS:
        raise ExperimentError(
            f"{max(options.servers)} servers are too many: at most {MOST_SERVERS}"
        )
    check(options.policies, options.dispatchers)
    trace = options.given_jobs(max(options.servers))
    cases = [
        ScaleCase(options, robots, servers, policy, dispatcher, seed)
        for robots in ((COPIES,) if trace else (COPIES, GROUPS))
        for servers in options.servers
        for policy in options.policies
        for dispatcher in options.dispatchers
        for seed in options.each_seed
    ]
    rows = run_all(score, cases, options.jobs, progress)
    rows = [plain(row) for row in metrics.relative(rows, KEYS, "goodput", BASELINE)]
    known = {
        **metrics.DEFINITIONS,
        **DEFINITIONS,
        "robots": "how the robots of n servers differ: "
        + "; ".join(f"`{name}`: {meaning}" for name, meaning in ROBOTS_ARE.items()),
        "utility_vs_one": "utility over that of the same requests at one server for each copy, or"
        " for each group of robots",
        f"goodput_vs_{BASELINE}": f"goodput over that of the policy {BASELINE} in the same setting,"
        " with the same seed",
    }
    return EXPERIMENT.document(
        options.profile,
        {
            "engine": "simulated, in virtual time, a serving loop and a clock for each server",
            "workload": trace.name
            if trace
            else f"preset {PRESET} with {ROBOTS} robots for each server",
            **({} if trace else {"minutes": options.minutes or MINUTES}),
            "seeds": options.named_seeds,
            "network, each way (s)": options.network_s,
        },
        keys=KEYS,
        measures=tuple(name for name in MEASURES if name in rows[0]),
        definitions={name: meaning for name, meaning in known.items() if name in rows[0]},
        rows=tuple(rows),
        notes=(
            "Figure 11 of Huang et al. 2025 shows for 1 to 4 servers that the gain in G stays as it"
            " is; it has no numbers of G. Its requests, and its overhead of 0.93 ms at 2 and 1.91"
            " ms at 4 servers, which is that of the annealing in each server, are those of"
            " `annealing-servers`; `timely-llm benchmark dispatch` measures an assignment.",
        ),
    )


def score(case: ScaleCase) -> Row:
    """Run a case, and the same requests at servers of their own; return its row."""
    options = case.options
    servers = servers_of((options.profile,) * case.servers, options.network_s, options.error)
    minutes = options.minutes or MINUTES
    if case.robots == COPIES:
        parts = [options.given_jobs(case.servers) or group(case.seed, minutes)]
        load = case.servers
    else:
        parts = list(groups(case.servers, case.seed, minutes))
        load = 1
    whole = ServersCase(crowd(parts), load, servers, case.policy, case.dispatcher, case.seed)
    alone = [simulate_case(replace(whole, trace=one, load=1, servers=servers[:1])) for one in parts]
    names: dict[str, RowValue] = {
        "robots": case.robots, "servers": case.servers, "policy": case.policy,
        "dispatcher": case.dispatcher, "seed": case.seed,
    }  # fmt: skip
    row = servers_row(simulate_case(whole), **names)
    one = metrics.row(_together(alone))["utility"]
    return plain({**row, "utility_vs_one": row["utility"] / one if one else float("nan")})


def _together(runs: list[Run]) -> Run:
    """Return the outcomes of several runs as those of one."""
    outcomes = tuple(outcome for one in runs for outcome in one.outcomes)
    return replace(runs[0], outcomes=outcomes)


EXPERIMENT = Experiment(
    name="servers-scale",
    question="Is a request worth as much at n servers with n times the load as at one?"
    " (Huang et al. 2025, Figure 11)",
    run=run,
    defaults=ScaleOptions(),
)
