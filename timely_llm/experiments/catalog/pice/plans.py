"""`pice-plans`: robots' plans with the help of a cloud, on recorded answers of real models."""

from __future__ import annotations

from dataclasses import dataclass

from timely_llm.experiments.contract import Experiment, ReportProgress, SeedOptions
from timely_llm.experiments.parallel import run_all
from timely_llm.experiments.results.document import RunDocument
from timely_llm.experiments.virtual.sketches.plan_score import (
    DEFINITIONS,
    MEASURES,
    POLICIES,
    SMALL,
    WAYS,
    PlanCase,
    score,
)
from timely_llm.experiments.virtual.sketches.recorded_plans import RECORDED
from timely_llm.experiments.virtual.sketches.setup import PROFILE

KEYS = ("per_min", "policy")

NOTES = (
    f"All plans are what real models answered to 72 held-out tasks ({RECORDED}): a planner of 0.48"
    " million parameters and the embedded model, of 2.07 million. A sketch is the plan of the"
    " latter, right or wrong, in words: no model was trained to sketch. The step times are those of"
    " other models, a thousand times as large.",
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


EXPERIMENT = Experiment(
    name="pice-plans",
    question="Which plans do robots execute, and how soon, when a cloud sketches what a small model"
    " at the edge plans?",
    run=run,
    defaults=PlansOptions(),
)
