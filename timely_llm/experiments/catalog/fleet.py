"""`fleet`: a fleet of robots at one server, by its size, with the metrics of others."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from timely_llm.engines.paces import step_time_profile
from timely_llm.experiments.contract import (
    Experiment,
    ExperimentError,
    ReportProgress,
    SeedOptions,
    SimulationOptions,
)
from timely_llm.experiments.parallel import run_all
from timely_llm.experiments.policy_spec import SERVED, PolicySpec, chosen, parse
from timely_llm.experiments.results import metrics
from timely_llm.experiments.results.document import Row, RowValue, RunDocument
from timely_llm.experiments.results.fleet import DEFINITIONS, fleet_row
from timely_llm.experiments.results.metrics import plain, relative
from timely_llm.experiments.sources import given, shipped_skill_sets, shipped_tasks
from timely_llm.experiments.virtual.outcome import Run
from timely_llm.experiments.virtual.simulation import (
    PAUSE_S,
    SimulationSettings,
    drawn_jobs,
    drawn_tasks,
    robot_works,
    simulate_fleet,
)
from timely_llm.experiments.virtual.workload import JobInstance
from timely_llm.traces.model import Job, Trace
from timely_llm.traces.recipes import presets

PRESET = "wid2"
"""The robots' kinds of tasks: drones (Ling et al. 2024, Table 3)."""

DEDICATED = "dedicated"
"""In the column `policy`: each robot has a server of its own, with the shared server's profile."""

NO_SCHEDULER = "stream"
"""Continuous batching in order of arrival, and segments as they come: no scheduler decides."""

POLICIES = ("fcfs", NO_SCHEDULER, "timely", SERVED, metrics.UNBOUNDED, "slice", "deadline")
MOST_ROBOTS = 1000
KEYS = ("robots", "policy")
MEASURES = (
    "qualified_per_min",
    "qualified_per_server_min",
    "utility_per_min",
    "utility",
    "slo_attainment",
    "useful_actions",
    "starvation_frequency",
    "starvation_duration_s",
    "action_age_p50_s",
    "action_age_p95_s",
    "fairness",
    "task_latency_s",
    "share_first",
    "share_finished",
    f"qualified_per_min_vs_{NO_SCHEDULER}",
    f"qualified_per_min_vs_{DEDICATED}",
)


@dataclass(frozen=True)
class FleetOptions(SeedOptions, SimulationOptions):
    """Options of `fleet`.

    Attributes:
        robots: sizes of the fleet.
        seconds: length of the window in which robots ask.
        error: standard deviation of the logarithm of predicted over true execution times.
        trace: a file of jobs that the robots draw from in place of the preset's tasks; its robots
            and times of arrival have no effect.
    """

    policies: tuple[str, ...] = POLICIES
    robots: tuple[int, ...] = (10, 50, 100, 200, 300)
    seeds: int = 3
    seconds: float = 60.0
    error: float = 0.2
    trace: Path | None = None


@dataclass(frozen=True)
class FleetCase:
    """One run: a fleet, its policy or none, and a seed.

    Attributes:
        spec: the shared server's policy; None if each robot has a server of its own.
        robots: size of the fleet.
        seed: of the robots' tasks.
        settings: of each server.
        seconds: length of the window.
        jobs: what the robots draw from; empty: the tasks of `PRESET`.
    """

    spec: PolicySpec | None
    robots: int
    seed: int
    settings: SimulationSettings
    seconds: float
    jobs: tuple[Job, ...] = ()


def run(options: FleetOptions, progress: ReportProgress) -> RunDocument:
    """Return what fleets of each size get under each policy.

    Raises:
        TimelyError: a policy is unknown, a fleet is too large, or the trace cannot be read or has
            no jobs.
    """
    if max(options.robots) > MOST_ROBOTS:
        raise ExperimentError(
            f"a fleet of {max(options.robots)} robots is too large: at most {MOST_ROBOTS}"
        )
    base = SimulationSettings(
        profile=step_time_profile(options.profile),
        network_s=options.network_s,
        prediction_error=options.error,
    )
    trace = given(options.trace) if options.trace else None
    if trace is not None and not trace.jobs:
        raise ExperimentError("fleet is about plans: the trace has no jobs")
    specs: list[PolicySpec | None] = [None, *chosen(options.policies)]
    cases = [
        FleetCase(spec, robots, seed, base, options.seconds, trace.jobs if trace else ())
        for robots in options.robots
        for spec in specs
        for seed in options.each_seed
    ]
    rows = run_all(score, cases, options.jobs, progress)
    for policy in (NO_SCHEDULER, DEDICATED):
        rows = relative(rows, KEYS, "qualified_per_min", policy)
    rows = list(map(plain, rows))
    known = {**metrics.DEFINITIONS, **DEFINITIONS} | {
        f"qualified_per_min_vs_{policy}": "qualified plans a minute over those of"
        f" {what} with the same seed"
        for policy, what in (
            (NO_SCHEDULER, "the shared server without a scheduler"),
            (DEDICATED, "dedicated servers"),
        )
    }
    return EXPERIMENT.document(
        options.profile,
        _setup(options, base, trace),
        keys=KEYS,
        measures=tuple(name for name in MEASURES if name in rows[0]),
        definitions={name: meaning for name, meaning in known.items() if name in rows[0]},
        rows=tuple(rows),
        notes=(
            f"`{DEDICATED}`: each robot has a server of its own, with the profile of the shared one"
            " and no scheduler.",
            f"`{NO_SCHEDULER}`: the shared server without a scheduler; segments go to their robots"
            " as they come, as under every policy but `fcfs`.",
        ),
    )


def score(case: FleetCase) -> Row:
    """Run a case and return its row."""
    names: dict[str, RowValue] = {
        "policy": case.spec.text if case.spec else DEDICATED,
        "robots": case.robots,
        "seed": case.seed,
    }
    fleet = [_works(robot, case) for robot in range(case.robots)]
    if case.spec is not None:
        made = simulate_fleet(
            fleet, case.spec.make(), case.spec.settings(case.settings), case.seconds
        )
        servers = 1
    else:
        made = _dedicated(fleet, case)
        servers = case.robots
    return plain(
        metrics.row(made, **names) | fleet_row(made.outcomes, case.seconds, servers, **names)
    )


def _works(robot: int, case: FleetCase) -> Iterator[JobInstance]:
    skill_sets = shipped_skill_sets()
    if case.jobs:
        draw = drawn_jobs(case.jobs)
    else:
        names = presets()[PRESET].names()
        draw = drawn_tasks({name: shipped_tasks().tasks[name] for name in names}, skill_sets)
    return robot_works(robot, draw, skill_sets, case.seed, case.settings.prediction_error)


def _dedicated(fleet: list[Iterator[JobInstance]], case: FleetCase) -> Run:
    """Return the outcomes of robots with a server each."""
    policy = parse(NO_SCHEDULER)
    runs = [simulate_fleet([one], policy.make(), case.settings, case.seconds) for one in fleet]
    return Run(
        tuple(outcome for run in runs for outcome in run.outcomes),
        sum(run.steps for run in runs),
        sum(run.busy_s for run in runs),
        max(run.span_s for run in runs),
        sum(run.generated_tokens for run in runs),
    )


def _setup(
    options: FleetOptions, base: SimulationSettings, trace: Trace | None
) -> dict[str, RowValue]:
    source = f"jobs of the trace {trace.name}" if trace else f"tasks of the preset {PRESET}"
    return {
        "engine": "simulated, in virtual time, with the serving loop itself",
        "step times": base.profile.source,
        "workload": f"{source}, drawn anew for each robot and seed",
        "seeds": options.named_seeds,
        "window (s)": options.seconds,
        "from the end of a plan to the robot's next request (s)": PAUSE_S,
        "prompt tokens, shared and computed once": base.shared_tokens,
        "prompt tokens computed for each request": base.own_tokens,
        "predicted execution times": "true times multiplied by an error, log-normal, sigma"
        f" {options.error:g}",
        "network, each way (s)": options.network_s,
    }


EXPERIMENT = Experiment(
    name="fleet",
    question="How much of its work does a fleet get done in time at one server, by its size?",
    run=run,
    defaults=FleetOptions(),
)
