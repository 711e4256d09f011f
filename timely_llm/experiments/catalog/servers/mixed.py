"""`servers-mixed`: robots and people at equal and at unlike servers, one of which dies."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import product

from timely_llm.dispatch.assign.registry import DEFAULT_DISPATCHER, DISPATCHERS
from timely_llm.engines.simulated import DEFAULT_PROFILE, PROFILES
from timely_llm.experiments.catalog.mixed import TALKS_ARE, with_talks
from timely_llm.experiments.contract import Experiment, ReportProgress
from timely_llm.experiments.parallel import run_all
from timely_llm.experiments.results import metrics
from timely_llm.experiments.results.document import Row, RowValue, RunDocument
from timely_llm.experiments.results.lanes import TALK_DEFINITIONS
from timely_llm.experiments.results.metrics import plain
from timely_llm.experiments.results.servers import DEFINITIONS, beside, servers_row
from timely_llm.experiments.virtual.crowd import (
    HEDGED,
    KV_TOKENS,
    MINUTES,
    PRESET,
    ROBOTS,
    CrowdOptions,
    ServersCase,
    check,
    crowd,
    groups,
    servers_of,
    simulate_case,
)
from timely_llm.experiments.virtual.servers import PUBLISH_S, SILENT_S
from timely_llm.policies.registry import DEFAULT_POLICY

EQUAL, UNLIKE = "equal", "unlike"
PROFILES_OF = {
    EQUAL: ("rtx4090-llama3-8b",) * 3,
    UNLIKE: ("rtx4090-llama3-8b", "v100x2-qwen2.5-7b", "rtx4060ti-chatglm2-6b"),
}
"""The servers; the first of them dies."""

GROUPS = 12
"""Groups of robots by default."""

BASELINE = "round-robin"
KEYS = ("servers", "load", "rate", "dies", "policy", "dispatcher")
MEASURES = (
    "utility",
    f"utility_vs_{BASELINE}",
    "urgent_utility",
    "normal_utility",
    "plan_attainment",
    "waiting_s",
    "share_finished",
    "attainment",
    "ttft_p95_s",
    "share_answered",
)


@dataclass(frozen=True)
class ServersMixedOptions(CrowdOptions):
    """Options of `servers-mixed`.

    Attributes:
        dispatchers: in the notation of `make_dispatcher`; `+hedge` behind it asks two servers for
            urgent plans.
        loads: groups of robots, or requests for each job of a trace; empty: `GROUPS` groups, or
            one request.
        rates: conversations a second.
    """

    policies: tuple[str, ...] = (DEFAULT_POLICY,)
    dispatchers: tuple[str, ...] = (
        *DISPATCHERS, "largest-memory:memory=free", DEFAULT_DISPATCHER + HEDGED,
    )  # fmt: skip
    profile: str = field(default=DEFAULT_PROFILE, init=False)
    loads: tuple[int, ...] = ()
    rates: tuple[float, ...] = (0.0, 2.0)
    seeds: int = 3

    @property
    def each_load(self) -> tuple[int, ...]:
        """The option `loads`, or its default."""
        return self.loads or ((GROUPS,) if self.trace is None else (1,))


def run(options: ServersMixedOptions, progress: ReportProgress) -> RunDocument:
    """Return what robots and people get by each rule.

    Raises:
        TimelyError: a policy or a dispatcher is unknown, or an option of one, or the trace is not
            possible.
    """
    check(options.policies, options.dispatchers)
    trace = options.given_jobs(max(options.each_load))
    rows = run_all(score, list(_cases(options)), options.jobs, progress)
    if BASELINE in options.dispatchers:
        rows = beside(rows, KEYS, "utility", BASELINE)
    known = {
        **metrics.DEFINITIONS,
        **TALK_DEFINITIONS,
        **DEFINITIONS,
        "load": "requests for each job" if trace else f"groups of {ROBOTS} robots",
        "rate": "conversations a second, Poisson",
        "dies": "whether a server dies in the middle",
        f"utility_vs_{BASELINE}": f"utility over that of {BASELINE} in the same setting, with the"
        " same seed",
    }
    named = {name for row in rows for name in row}
    return EXPERIMENT.document(
        " and ".join(dict.fromkeys(name for names in PROFILES_OF.values() for name in names)),
        {
            "engine": "simulated, in virtual time, a serving loop and a clock for each server",
            **{f"step times of {name}": PROFILES[name].source for name in PROFILES_OF[UNLIKE]},
            "workload": trace.name
            if trace
            else f"groups of {ROBOTS} robots of preset {PRESET}, each with events of its own",
            "conversations": TALKS_ARE,
            **({} if trace else {"minutes": options.minutes or MINUTES}),
            "seeds": options.named_seeds,
            "KV of each server (tokens)": KV_TOKENS,
            "network, each way (s)": options.network_s,
            "from one view of a server to the next (s)": PUBLISH_S,
            "silence after which a server counts as dead (s)": SILENT_S,
        },
        keys=KEYS,
        measures=tuple(name for name in MEASURES if name in named),
        definitions={name: meaning for name, meaning in known.items() if name in named},
        rows=tuple(rows),
        notes=(
            f"`{EQUAL}`: {PROFILES_OF[EQUAL][0]} three times. `{UNLIKE}`:"
            f" {', '.join(PROFILES_OF[UNLIKE])}. The first of them dies.",
        ),
    )


def _cases(options: ServersMixedOptions) -> Iterator[ServersCase]:
    """Yield a case for each kind of servers, load, rate, death, policy, rule and seed."""
    for kind, load, rate, dies, policy, dispatcher, seed in product(
        PROFILES_OF, options.each_load, options.rates, (False, True), options.policies,
        options.dispatchers, options.each_seed,
    ):  # fmt: skip
        values: tuple[RowValue, ...] = (kind, load, rate, dies, policy, dispatcher, seed)
        trace, minutes = options.given_jobs(load), options.minutes or MINUTES
        if trace is not None:
            robots, copies = trace, load
            middle_s = trace.jobs[0].arrival_s + trace.span_s / 2
        else:
            robots, copies = crowd(list(groups(load, seed, minutes))), 1
            middle_s = 30.0 * minutes
        dies_s = middle_s if dies else math.inf
        servers = servers_of(PROFILES_OF[kind], options.network_s, options.error, dies_s)
        yield ServersCase(
            with_talks(robots, rate, seed), copies, servers, policy, dispatcher, seed,
            dict(zip((*KEYS, "seed"), values, strict=True)),
        )  # fmt: skip


def score(case: ServersCase) -> Row:
    """Run a case and return its row."""
    return plain(servers_row(simulate_case(case), **case.names))


EXPERIMENT = Experiment(
    name="servers-mixed",
    question="What are requests worth at several servers, by the rule that assigns them?",
    run=run,
    defaults=ServersMixedOptions(),
)
