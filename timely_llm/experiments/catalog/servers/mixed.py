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

KV_TOKENS = {
    "rtx4090-llama3-8b": 31_000,
    "v100x2-qwen2.5-7b": 187_000,
    "rtx4060ti-chatglm2-6b": 65_000,
}
"""Tokens of KV of each profile, by arithmetic: 90 % of the memory, less the weights and 1.43 GB of
each device for activations and buffers (as in `pipeline_profiles`), over the bytes of a token.

- One RTX 4090, 24 GB. Llama 3 8B: 16.1 GB; 2 x 32 layers x 8 heads x 128 values x 2 bytes.
- Two V100, 16 GB each. Qwen2.5 7B: 15.2 GB; 2 x 28 layers x 4 heads x 128 values x 2 bytes.
- One RTX 4060 Ti, 8 GB. ChatGLM2-6B: 3.9 GB, embeddings in 2 bytes and the rest in INT4; 2 x 28
  layers x 2 heads x 128 values x 2 bytes.

V100 and RTX 4060 Ti are sold with twice this memory too; the profiles do not say which was used.
"""

GROUPS = 12
"""Groups of robots by default."""

COMPARED = ("round-robin", DEFAULT_DISPATCHER)
"""Rules that each rule is compared with, moves as it has them."""

RATIOS = ("utility", "worth")
"""Measures in which they are compared."""

PLAIN, UNMOVED = "round-robin", {"moves": False}
"""Round robin as elsewhere: requests stay where it sends them."""

KEYS = ("servers", "load", "rate", "dies", "policy", "moves", "dispatcher")
MEASURES = (
    "utility",
    "worth",
    *(f"{measure}_vs_{other}" for measure in RATIOS for other in COMPARED),
    *(f"{measure}_vs_{PLAIN}_moves=False" for measure in RATIOS),
    "urgent_utility",
    "normal_utility",
    "plan_attainment",
    "waiting_s",
    "share_finished",
    "attainment",
    "qoe",
    "stalled_s",
    "ttft_p95_s",
    "share_answered",
)


@dataclass(frozen=True)
class ServersMixedOptions(CrowdOptions):
    """Options of `servers-mixed`. Each rule runs with moves and without, with `+hedge` only with.

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
    for other in COMPARED:
        if other in options.dispatchers:
            for measure in RATIOS:
                rows = beside(rows, KEYS, measure, other)
    for measure in RATIOS:
        rows = beside(rows, KEYS, measure, PLAIN, **UNMOVED)
    known = {
        **metrics.DEFINITIONS,
        **TALK_DEFINITIONS,
        **DEFINITIONS,
        "load": "requests for each job" if trace else f"groups of {ROBOTS} robots",
        "rate": "conversations a second, Poisson",
        "dies": "whether a server dies in the middle",
        "moves": "whether requests that have not begun move to another server where they are worth"
        " more, as with `timely-llm dispatch`; without moves the rule alone decides",
        **{
            f"{measure}_vs_{other}": f"{measure} over that of {other} in the same setting, with"
            " moves as this one, and with the same seed"
            for measure in RATIOS
            for other in COMPARED
        },
        **{
            f"{measure}_vs_{PLAIN}_moves=False": f"{measure} over that of {PLAIN} without moves,"
            " which is what it is elsewhere, in the same setting and with the same seed"
            for measure in RATIOS
        },
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
            "KV (tokens)": ", ".join(f"{name}: {kv:,}" for name, kv in KV_TOKENS.items()),
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
    """Yield a case for each kind of servers, load, rate, death, policy, moves, rule and seed."""
    for kind, load, rate, dies, policy, moves, dispatcher, seed in product(
        PROFILES_OF, options.each_load, options.rates, (False, True), options.policies,
        (False, True), options.dispatchers, options.each_seed,
    ):  # fmt: skip
        if dispatcher.endswith(HEDGED) and not moves:
            continue
        values: tuple[RowValue, ...] = (kind, load, rate, dies, policy, moves, dispatcher, seed)
        trace, minutes = options.given_jobs(load), options.minutes or MINUTES
        if trace is not None:
            robots, copies = trace, load
            middle_s = trace.jobs[0].arrival_s + trace.span_s / 2
        else:
            robots, copies = crowd(list(groups(load, seed, minutes))), 1
            middle_s = 30.0 * minutes
        dies_s = middle_s if dies else math.inf
        servers = servers_of(PROFILES_OF[kind], options.network_s, options.error, dies_s, KV_TOKENS)
        yield ServersCase(
            with_talks(robots, rate, seed), copies, servers, policy, dispatcher, seed,
            dict(zip((*KEYS, "seed"), values, strict=True)), moves,
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
