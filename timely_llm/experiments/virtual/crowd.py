"""Many robots at several servers: their workload, and runs of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path

from timely_llm.dispatch.assign.registry import make_dispatcher
from timely_llm.engines.paces import step_time_profile
from timely_llm.engines.simulated import Profile
from timely_llm.experiments.contract import ExperimentError, SeedOptions, SimulationOptions
from timely_llm.experiments.policy_spec import chosen, parse
from timely_llm.experiments.results.document import RowValue
from timely_llm.experiments.sources import given, recipe_of, shipped_skill_sets, shipped_tasks
from timely_llm.experiments.virtual import workload
from timely_llm.experiments.virtual.outcome import Run
from timely_llm.experiments.virtual.servers import SimulatedServer, simulate_servers
from timely_llm.experiments.virtual.simulation import LIMITS, SimulationSettings
from timely_llm.traces.compose import compose
from timely_llm.traces.lines import MAX_REQUESTS
from timely_llm.traces.model import Trace
from timely_llm.traces.recipes import presets

PRESET = "wid2"
"""The robots' workload: drones at high load (Ling et al. 2024, Table 3)."""

ROBOTS = 31
"""Robots of a group: 64 groups have 1,984."""

HEDGED = "+hedge"
"""Behind a rule: urgent plans are asked of two servers."""

KV_TOKENS = 200_000
"""Tokens of KV of a server, unless an experiment says otherwise."""

MINUTES = 1.0
"""Length of a composed workload."""

_APART = 1000  # seeds of the groups of one seed


@dataclass(frozen=True)
class CrowdOptions(SeedOptions, SimulationOptions):
    """Options of experiments with robots at several servers.

    Attributes:
        dispatchers: in the notation of `make_dispatcher`.
        minutes: length of a composed workload; None: `MINUTES`.
        error: standard deviation of the logarithm of predicted over true execution times.
        trace: a file of jobs in place of the composed workload.
    """

    dispatchers: tuple[str, ...] = ()
    minutes: float | None = None
    error: float = 0.2
    trace: Path | None = None

    def given_jobs(self, copies: int) -> Trace | None:
        """Return the jobs of the user's trace; None without one.

        Args:
            copies: how often each job is asked at most.

        Raises:
            TimelyError: the trace cannot be read, has no jobs, has too many for these copies, or
                minutes are given beside it.
        """
        if self.trace is None:
            return None
        if self.minutes is not None:
            raise ExperimentError("a trace has its own length: leave out minutes")
        trace = given(self.trace)
        if not trace.jobs:
            raise ExperimentError(f"{self.trace.name} has no jobs")
        if (made := copies * len(trace.jobs)) > MAX_REQUESTS:
            raise ExperimentError(
                f"{copies} of each job make {made} requests: at most {MAX_REQUESTS}"
            )
        return replace(trace, conversations=())


@lru_cache(maxsize=256)
def group(seed: int, minutes: float = MINUTES) -> Trace:
    """Return the requests of `ROBOTS` robots."""
    recipe = recipe_of(presets()[PRESET], seed, minutes)
    recipe = recipe.model_copy(update={"agents": {"drone": ROBOTS}})
    return compose(recipe, shipped_tasks(), shipped_skill_sets(), None, PRESET)


def groups(number: int, seed: int, minutes: float = MINUTES) -> Iterator[Trace]:
    """Yield groups of robots with events of their own, each with names of its own.

    Raises:
        ExperimentError: the seed has fewer groups.
    """
    if number > _APART:
        raise ExperimentError(f"a load of {number} is too large: at most {_APART}")
    for place in range(number):
        made = group(_APART * seed + place, minutes)
        jobs = (
            replace(job, id=f"{place}.{job.id}", agent=f"{place}.{job.agent}") for job in made.jobs
        )
        yield replace(made, jobs=tuple(jobs))


def crowd(parts: Sequence[Trace]) -> Trace:
    """Return the requests of several groups as one workload."""
    jobs = sorted((job for part in parts for job in part.jobs), key=lambda job: job.arrival_s)
    return Trace(PRESET, jobs=tuple(jobs))


@dataclass(frozen=True)
class ServersCase:
    """One run with several servers.

    Attributes:
        trace: its workload.
        load: copies of each job.
        servers: the servers.
        policy: of each server, in the notation of `policy_spec`.
        dispatcher: in the notation of `make_dispatcher`; with `HEDGED` behind it, urgent plans are
            asked of two servers.
        seed: of the errors of predicted execution times.
        names: key columns of its row.
        moves: whether requests that have not begun move to another server where they are worth
            more, as with the parameter `move` of `timely-llm dispatch`; None: only under a rule
            that gathers bursts.
    """

    trace: Trace
    load: int
    servers: tuple[SimulatedServer, ...]
    policy: str
    dispatcher: str
    seed: int
    names: dict[str, RowValue] = field(default_factory=dict)
    moves: bool | None = None


def check(policies: Sequence[str], dispatchers: Sequence[str]) -> None:
    """Check names and options of policies and dispatchers before anything runs.

    Raises:
        TimelyError: one of them is not possible, or there is none.
    """
    chosen(policies)
    for spec in dispatchers:
        make_dispatcher(spec.removesuffix(HEDGED))


def simulate_case(case: ServersCase) -> Run:
    """Return the outcomes of a case.

    Raises:
        TimelyError: the run is not possible.
    """
    spec, settings = parse(case.policy), case.servers[0].settings
    works = workload.works(
        case.trace, case.load, case.seed, settings.prediction_error, settings.true_noise,
        settings.skip, shipped_skill_sets(), settings.durations,
    )  # fmt: skip
    servers = [replace(one, settings=spec.settings(one.settings)) for one in case.servers]
    dispatcher = make_dispatcher(case.dispatcher.removesuffix(HEDGED))
    moves = dispatcher.gathers if case.moves is None else case.moves
    return simulate_servers(
        works, case.trace.conversations, servers, spec.make, dispatcher, moves,
        hedge=case.dispatcher.endswith(HEDGED),
    )  # fmt: skip


def servers_of(
    profiles: Sequence[str | Profile],
    network_s: float,
    error: float,
    dies_s: float = float("inf"),
    kv_tokens: Mapping[str, int] | None = None,
) -> tuple[SimulatedServer, ...]:
    """Return a server of each profile; the first of them dies at a time.

    Args:
        profiles: of the servers.
        network_s: seconds of a message, each way.
        error: standard deviation of the logarithm of predicted over true execution times.
        dies_s: when the first one dies, seconds on the trace's clock; infinite: never.
        kv_tokens: tokens of KV by the name of a profile; others have `KV_TOKENS`.

    Raises:
        EngineError: no profile has a name.
    """
    made = [step_time_profile(one) if isinstance(one, str) else one for one in profiles]
    kv = kv_tokens or {}
    return tuple(
        SimulatedServer(
            f"server_{number:02d}",
            SimulationSettings(
                profile=one,
                network_s=network_s,
                prediction_error=error,
                limits=replace(LIMITS, kv_tokens=kv.get(one.name, KV_TOKENS)),
            ),
            dies_s if number == 0 else float("inf"),
        )
        for number, one in enumerate(made)
    )
