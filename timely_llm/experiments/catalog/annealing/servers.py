"""`annealing-servers`: ten requests, with a copy for each server (Huang et al. 2025, §5.5)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from time import process_time

from timely_llm.dispatch.assign.registry import DEFAULT_DISPATCHER, make_dispatcher
from timely_llm.dispatch.contract import Assignment, Dispatcher, ServerView, Waiting
from timely_llm.engines.paces import step_time_profile
from timely_llm.experiments.catalog.annealing.order import (
    GAINS,
    LINEARISED,
    OrderOptions,
    compared,
)
from timely_llm.experiments.contract import Experiment, ReportProgress
from timely_llm.experiments.parallel import run_all
from timely_llm.experiments.policy_spec import PolicySpec, chosen
from timely_llm.experiments.results.document import RunDocument
from timely_llm.experiments.results.metrics import MeasuredRow, plain
from timely_llm.experiments.results.reported import HUANG_FIGURE_11
from timely_llm.experiments.virtual.annealing_workload import (
    G_DEFINITIONS,
    WORKLOAD,
    ErroneousLengths,
    g_row,
    mixed,
    prepare,
)
from timely_llm.experiments.virtual.servers import SimulatedServer, simulate_servers
from timely_llm.experiments.virtual.simulation import LIMITS, SimulationSettings
from timely_llm.policies.annealing.latency import LatencyPredictor
from timely_llm.policies.annealing.lengths import OutputLengths
from timely_llm.policies.annealing.objective import SizedRequest
from timely_llm.policies.annealing.policy import Annealing
from timely_llm.policies.annealing.search import FoundOrder
from timely_llm.policies.contract import Policy
from timely_llm.traces.model import Trace

REQUESTS = 10
"""Requests of one server (§5.5)."""

BATCH = 1
"""Most requests in a batch: the times of Figure 11 are multiples of the times of Table 1."""

LEARNED, KNOWN = "learned", "known"
KEYS = ("lengths", "servers", "dispatcher", "policy")
POLICIES = (
    "fcfs",
    "annealing",
    "annealing:reset=on:lengths=quantile:objective=worth:static=off",
    "annealing:search=exact",
    "deadline",
)
_DEFINITIONS = {
    "lengths": f"lengths of answers that annealing has: {LEARNED} from 200 earlier answers of each"
    f" type, or {KNOWN}",
    "servers": "equal servers; each request comes once for each of them",
    "dispatcher": "rule that assigns requests to servers",
    "search_ms": "CPU time of the searches for an order at all servers, in sum, milliseconds; it"
    " depends on the machine",
    "evaluations": "orders, or parts of orders, that these searches scored, in sum",
    "assign_ms": "CPU time of the dispatcher's rule for all requests, milliseconds; it depends on"
    " the machine",
}


@dataclass(frozen=True)
class ServersOptions(OrderOptions):
    """Options of `annealing-servers`.

    Attributes:
        policies: of each server, in the notation of `policy_spec`.
        dispatchers: in the notation of `make_dispatcher`.
        servers: numbers of servers.
    """

    policies: tuple[str, ...] = POLICIES
    dispatchers: tuple[str, ...] = ("largest-memory", DEFAULT_DISPATCHER)
    servers: tuple[int, ...] = (1, 2, 3, 4)
    sizes: tuple[int, ...] = field(default=(REQUESTS,), init=False)


@dataclass(frozen=True)
class CopiesCase:
    """One run: what annealing knows of lengths, the servers, their policy, their rule, a seed."""

    lengths: str
    servers: int
    dispatcher: str
    spec: PolicySpec
    profile: str
    seed: int


def run(options: ServersOptions, progress: ReportProgress) -> RunDocument:
    """Return G and its parts at n servers, and the time of all searches for an order.

    Known lengths have rows of the first dispatcher only.

    Raises:
        TimelyError: a policy or a dispatcher is unknown, or there is no profile of that name.
    """
    specs = chosen(options.policies, words=False)
    for dispatcher in options.dispatchers:
        make_dispatcher(dispatcher)
    cases = [
        CopiesCase(lengths, servers, dispatcher, spec, options.profile, seed)
        for lengths in (LEARNED, KNOWN)
        for servers in options.servers
        for dispatcher in options.dispatchers[: None if lengths == LEARNED else 1]
        for spec in specs
        for seed in options.each_seed
    ]
    rows = run_all(score, cases, options.jobs, progress)
    known = {name: G_DEFINITIONS[name] for name in ("g", "attainment", "latency_s")}
    return EXPERIMENT.document(
        options.profile,
        {
            "engine": "simulated, in virtual time, a serving loop and a clock for each server",
            "seeds": options.named_seeds,
            "requests of a server": REQUESTS,
            "batch": BATCH,
            "step times": step_time_profile(options.profile).source,
            "workload": WORKLOAD,
        },
        keys=KEYS,
        measures=(
            "g", "g_gain", "attainment", "attainment_gain", "latency_s", "latency_gain",
            "search_ms", "evaluations", "assign_ms",
        ),
        definitions={**_DEFINITIONS, **known, **GAINS},
        rows=compared(rows, KEYS),
        papers=(HUANG_FIGURE_11,),
        notes=(
            "The servers share one model of lengths, as one profiler has them in the paper. So the"
            " draws for the copies of a request differ.",
            "`deadline` and `fcfs` do not know lengths, and search for no order.",
            LINEARISED,
        ),
    )  # fmt: skip


def score(case: CopiesCase) -> MeasuredRow:
    """Return the row of a run."""
    profile = step_time_profile(case.profile)
    settings = SimulationSettings(
        profile=profile, network_s=0.0, limits=replace(LIMITS, max_rows=BATCH)
    )
    servers = [
        SimulatedServer(f"server_{number:02d}", case.spec.settings(settings))
        for number in range(case.servers)
    ]
    trace = copies(mixed(REQUESTS, case.seed), case.servers)
    policies, rule = _Policies(case, trace), _TimedRule(make_dispatcher(case.dispatcher))
    ran = simulate_servers((), trace.conversations, servers, policies.make, rule, rule.gathers)
    row = g_row(
        ran, lengths=case.lengths, servers=case.servers, dispatcher=case.dispatcher,
        policy=case.spec.text, seed=case.seed,
    )  # fmt: skip
    searched = {
        "search_ms": 1e3 * policies.spent_s if policies.found else math.nan,
        "evaluations": sum(one.evaluations for one in policies.found) or math.nan,
        "assign_ms": 1e3 * rule.spent_s,
    }
    return plain({**row, **searched})


def copies(trace: Trace, count: int) -> Trace:
    """Return a workload with some copies of each conversation, one behind the other."""
    made = (
        replace(talk, id=f"{talk.id}.{number}", agent=f"{talk.agent}.{number}")
        for talk in trace.conversations
        for number in range(count)
    )
    return replace(trace, conversations=tuple(made))


class _Policies:
    """Makes the policy of each server, and counts what their searches cost.

    Attributes:
        found: what the searches found.
        spent_s: CPU seconds of them.
    """

    def __init__(self, case: CopiesCase, trace: Trace) -> None:
        self.found: list[FoundOrder] = []
        self.spent_s = 0.0
        self._case = case
        self._lengths: OutputLengths | None = None
        if case.lengths == KNOWN:
            self._lengths = ErroneousLengths(trace, 0.0, case.seed)

    def make(self) -> Policy:
        """Return the policy of the next server."""
        policy = self._case.spec.make()
        prepare(policy, step_time_profile(self._case.profile), self._case.seed)
        if isinstance(policy, Annealing):
            self._lengths = policy.output_lengths = self._lengths or policy.output_lengths
            self._watch(policy)
        return policy

    def _watch(self, policy: Annealing) -> None:
        find = policy.find

        def timed(
            requests: Sequence[SizedRequest], predictor: LatencyPredictor, rows: int
        ) -> FoundOrder:
            began_s = process_time()
            found = find(requests, predictor, rows)
            self.spent_s += process_time() - began_s
            self.found.append(found)
            return found

        policy.find = timed  # type: ignore[method-assign]


class _TimedRule:
    """A dispatcher's rule.

    Attributes:
        spent_s: CPU seconds of its assignments.
    """

    def __init__(self, rule: Dispatcher) -> None:
        self._rule = rule
        self.gathers = rule.gathers
        self.spent_s = 0.0

    def assign(
        self, now: float, waiting: Sequence[Waiting], servers: Sequence[ServerView]
    ) -> Sequence[Assignment]:
        """Return the rule's assignments."""
        began_s = process_time()
        made = self._rule.assign(now, waiting, servers)
        self.spent_s += process_time() - began_s
        return made


EXPERIMENT = Experiment(
    name="annealing-servers",
    question="Does an order by annealing gain as much at n servers with a copy of each request for"
    " each, and what do its searches cost? (Huang et al. 2025, Figure 11)",
    run=run,
    defaults=ServersOptions(),
)
