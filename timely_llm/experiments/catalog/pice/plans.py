"""`pice-plans`: robots' plans with the help of a cloud, on recorded answers of real models."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

import numpy as np

from timely_llm.core.request import RequestMode
from timely_llm.core.text import quoted
from timely_llm.engines.simulated import PROFILES
from timely_llm.experiments.contract import (
    Experiment,
    ExperimentError,
    ReportProgress,
    SeedOptions,
)
from timely_llm.experiments.parallel import run_all
from timely_llm.experiments.results.document import RowValue, RunDocument
from timely_llm.experiments.results.metrics import MeasuredRow, plain
from timely_llm.experiments.sources import shipped_skill_sets
from timely_llm.experiments.virtual.sketches.plan_bench import (
    AskedPlan,
    PlanBench,
    PlanDevices,
    PlanningRobot,
    PlanWay,
)
from timely_llm.experiments.virtual.sketches.recorded_plans import RECORDED, recorded_plans
from timely_llm.experiments.virtual.sketches.setup import PROFILE
from timely_llm.experiments.virtual.sketches.testbed import (
    DEFAULT_FAR_MODEL,
    FAR_MODELS,
    PATH,
    edge_profile,
)
from timely_llm.progressive.settings import HelpSettings

SMALL = "qwen2.5-1.5b"
"""Model with the step times of the edge."""


def _routed(bench: PlanBench, robot: PlanningRobot) -> None:
    """Let the edge plan what its model can, and the cloud all else: an oracle knows which."""
    plan = robot.asked.plan
    if plan.small == plan.right:
        bench.plan_at_edge(robot)
    else:
        bench.plan_in_cloud(robot)


def _by_rules(bench: PlanBench, robot: PlanningRobot) -> None:
    """Ask for help in the mode `AUTO`."""
    request = replace(bench.request(robot), mode=RequestMode.AUTO)
    alone = bench.settings.refusal(request, robot.asked.at_s, -math.inf, bench.serving)
    if alone is None:
        bench.help(robot)
    else:
        bench.plan_at_edge(robot)


WAYS: Mapping[str, PlanWay] = {
    "edge-only": PlanBench.plan_at_edge,
    "cloud-only": PlanBench.plan_in_cloud,
    "routing": _routed,
    "pice-static": PlanBench.sketch_first,
    "help": PlanBench.help,
    "help:auto": _by_rules,
}

POLICIES = (
    "`edge-only`: the small model plans; `cloud-only`: the large one does; `routing`: the small one"
    " plans what it gets right, by an oracle, and the large one all else; `pice-static`: the cloud"
    " writes a sketch of each task, and the edge plans when it is whole; `help`: the mode"
    " `PROGRESSIVE` of a server, `help:auto`: `AUTO`"
)

DEFINITIONS: Mapping[str, str] = {
    "exact": "share of the tasks for which the robot executes the one right plan",
    "valid": "share of the tasks with a plan that keeps to grammar and argument checks to its end",
    "repaired": "share of exact plans among the tasks that the small model alone gets wrong",
    "response_s": "from a question to the robot's first action, seconds, mean",
    "waiting_s": "seconds without an action until the end of a plan, mean",
    "done_s": "from a question to the end of the robot's last action, seconds, mean",
    "cloud_tokens": "words, numbers, marks and spaces of the cloud for each task",
    "edge_tokens": "those of the edge for each task",
    "helped": "share of the tasks with steps of the cloud in their plan",
    "count": "tasks of the run",
}

MEASURES = ("exact", "valid", "repaired", "response_s", "waiting_s", "cloud_tokens", "helped")

KEYS = ("per_min", "policy")

NOTES = (
    f"All plans are what real models answered to 72 held-out tasks ({RECORDED}): a planner of 0.48"
    " million parameters and the embedded model, of 2.07 million, which also writes the sketches."
    " The step times are those of other models, a thousand times as large.",
    "The share of exact plans is that of six families of tasks with plans that run straight on. It"
    " says nothing about plans with conditions or loops: they have no steps.",
)


@dataclass(frozen=True)
class PlansOptions(SeedOptions):
    """Options of `pice-plans`.

    Attributes:
        policies: ways to plans, of `WAYS`.
        rates: tasks a second; each is a run.
        jobs: processes that run at once.
    """

    policies: tuple[str, ...] = tuple(WAYS)
    rates: tuple[float, ...] = (1 / 6, 1.0, 3.0)
    seeds: int = 3
    jobs: int = 2


def run(options: PlansOptions, progress: ReportProgress) -> RunDocument:
    """Return which plans robots execute, and when, by the way they get them.

    Raises:
        TimelyError: a way is unknown.
    """
    cases = [
        PlanCase(policy, 60 * rate, seed, {"per_min": round(60 * rate, 1), "policy": policy})
        for rate in options.rates
        for policy in options.policies
        for seed in options.each_seed
    ]
    return EXPERIMENT.document(
        PROFILE,
        {
            "engine": "simulated, in virtual time; the serving loop itself at the edge",
            "devices": f"a cloud with four A100, a Jetson AGX Orin with the step times of {SMALL}",
            "tasks": "Poisson, each of another robot that takes as long as its skill set predicts",
            "seeds": options.named_seeds,
        },
        keys=KEYS,
        measures=(*MEASURES, "done_s", "edge_tokens"),
        definitions={"per_min": "tasks a minute", "policy": POLICIES, **DEFINITIONS},
        rows=tuple(run_all(score, cases, options.jobs, progress)),
        notes=NOTES,
    )


@dataclass(frozen=True)
class PlanCase:
    """One run.

    Attributes:
        way: how robots get their plans, of `WAYS`.
        per_min: tasks a minute.
        seed: of the order and the times of the tasks.
        names: columns of its row that name it.
        tasks: most tasks; 0: all that are recorded.
    """

    way: str
    per_min: float
    seed: int
    names: Mapping[str, RowValue]
    tasks: int = 0

    def robots(self) -> list[PlanningRobot]:
        """Run it and return what the robots got.

        Raises:
            ExperimentError: there is no such way.
        """
        if self.way not in WAYS:
            allowed = ", ".join(WAYS)
            raise ExperimentError(f"unknown method {quoted(self.way)}: choose one of {allowed}")
        plans = recorded_plans()
        rng = np.random.default_rng(self.seed)
        order = rng.permutation(len(plans))[: self.tasks or len(plans)]
        at_s = np.cumsum(rng.exponential(60.0 / self.per_min, len(order)))
        asked = [
            AskedPlan(f"robot-{place}", float(at_s[place]), plans[one])
            for place, one in enumerate(order)
        ]
        far = FAR_MODELS[DEFAULT_FAR_MODEL]
        devices = PlanDevices(
            shipped_skill_sets(), edge_profile(SMALL), PROFILES[f"a100x4-{far.name}"], far.rows,
            PATH,
        )  # fmt: skip
        return PlanBench(asked, WAYS[self.way], devices, HelpSettings()).run()


def score(case: PlanCase) -> MeasuredRow:
    """Run a case and return its row."""
    return plain({**case.names, "seed": case.seed, **measures(case.robots())})


def measures(robots: Sequence[PlanningRobot]) -> MeasuredRow:
    """Return the columns of `DEFINITIONS` for the robots of a run."""
    failed = [one for one in robots if one.asked.plan.small != one.asked.plan.right]
    began = [one for one in robots if not math.isnan(one.response_s)]
    return {
        "exact": fmean(one.exact for one in robots),
        "valid": fmean(one.valid for one in robots),
        "repaired": fmean(one.exact for one in failed) if failed else math.nan,
        "response_s": fmean(one.response_s for one in began) if began else math.nan,
        "waiting_s": fmean(one.waiting_s for one in began) if began else math.nan,
        "done_s": fmean(one.done_s for one in began) if began else math.nan,
        "cloud_tokens": fmean(one.cloud_tokens for one in robots),
        "edge_tokens": fmean(one.edge_tokens for one in robots),
        "helped": fmean(one.helped for one in robots),
        "count": len(robots),
    }


EXPERIMENT = Experiment(
    name="pice-plans",
    question="Which plans do robots execute, and how soon, when a cloud sketches what a small model"
    " at the edge plans?",
    run=run,
    defaults=PlansOptions(),
)
