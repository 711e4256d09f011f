"""`optimal`: how far policies are from the best that could be done, where that can be computed."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from timely_llm.core.time_utility import NORMAL, URGENT
from timely_llm.engines.profiles import step_time_profile
from timely_llm.experiments.best_schedule import best_utility
from timely_llm.experiments.contract import Experiment, Options
from timely_llm.experiments.document import Row, RunDocument
from timely_llm.experiments.parallel import run_all
from timely_llm.experiments.policy_spec import PolicySpec, chosen
from timely_llm.experiments.simulation import Settings, simulate_works
from timely_llm.experiments.stage import Progress
from timely_llm.experiments.workload import Part, Work
from timely_llm.traces.model import Job

REQUESTS = (5, 6, 7)
INSTANCES = 10
"""Of each number of requests, for a seed."""

_TOKENS = (4, 9)
_URGENT_SHARE = 0.5
_POLICIES = ("fcfs", "stream", "timely", "deadline")
_DEFINITIONS = {
    "prompt_tokens": "tokens of each prompt, computed for each request",
    "within_s": "seconds in which all requests of an instance come",
    "requests": "plan requests of an instance",
    "share_of_best": "utility over that of the best schedule, mean over instances",
    "worst_share": "the same of the instance in which it is lowest",
    "utility": "clamped time utility of an instance's first segments, summed, mean over instances",
    "best_utility": "the same of the best schedule",
    "instances": "instances behind a row",
}


@dataclass(frozen=True)
class Burst:
    """How hard an instance is.

    Attributes:
        prompt_tokens: of each request, none of them computed before.
        within_s: all requests come within so many seconds.
    """

    prompt_tokens: int
    within_s: float


BURSTS = (Burst(110, 0.4), Burst(400, 0.1))
"""What drones ask, and so much at once that not everybody can be served in time."""


@dataclass(frozen=True)
class Case:
    """Instances of one kind, size and seed."""

    specs: tuple[PolicySpec, ...]
    settings: Settings
    burst: Burst
    requests: int
    seed: int


def run(options: Options, progress: Progress) -> RunDocument:
    """Return what share of the best utility each policy reaches on small instances.

    An instance has five to seven requests in a burst; half of them are urgent, and a first segment
    has 4 to 9 tokens. Only first segments earn something. The best schedule (`best_schedule`) knows
    all arrivals and lengths; policies know neither before they are there.

    Raises:
        TimelyError: something of the options is not possible.
    """
    settings = Settings(profile=step_time_profile(options.profile), network_s=0.0)
    specs = tuple(chosen(options))
    cases = [
        Case(specs, replace(settings, own_tokens=burst.prompt_tokens), burst, requests, seed)
        for burst in BURSTS
        for requests in REQUESTS
        for seed in range(options.seeds)
    ]
    return RunDocument(
        experiment=EXPERIMENT.name,
        question=EXPERIMENT.question,
        profile=options.profile,
        setup={"seeds": options.seeds, "instances": INSTANCES},
        keys=("prompt_tokens", "requests", "policy"),
        measures=("share_of_best", "worst_share", "utility", "best_utility"),
        definitions=_DEFINITIONS,
        rows=tuple(row for rows in run_all(score, cases, options.jobs, progress) for row in rows),
        notes=(
            "The best schedule knows what no policy can: when requests will come, and how long"
            " their segments are.",
            "Whoever has begun goes on without a pause in it, and what follows a first segment"
            " costs it nothing.",
        ),
    )


def score(case: Case) -> list[Row]:
    """Return the rows of a case, one for each policy.

    Raises:
        TimelyError: it cannot be run.
    """
    earned: list[list[float]] = []
    bests: list[float] = []
    for works in instances(case.requests, case.seed, case.burst):
        earned.append([utility(works, spec, case.settings) for spec in case.specs])
        bests.append(best_utility(works, case.settings, max(earned[-1])))
    rows: list[Row] = []
    for spec, got in zip(case.specs, zip(*earned, strict=True), strict=True):
        # Where the engine is too slow for anybody, nothing is all there is.
        shares = [value / best if best else 1.0 for value, best in zip(got, bests, strict=True)]
        rows.append(
            {
                "policy": spec.text,
                "prompt_tokens": case.burst.prompt_tokens,
                "within_s": case.burst.within_s,
                "requests": case.requests,
                "seed": case.seed,
                "share_of_best": round(fmean(shares), 6),
                "worst_share": round(min(shares), 6),
                "utility": round(fmean(got), 6),
                "best_utility": round(fmean(bests), 6),
                "instances": len(shares),
            }
        )
    return rows


def utility(works: Sequence[Work], spec: PolicySpec, settings: Settings) -> float:
    """Return what first segments earn under a policy.

    Raises:
        TimelyError: it cannot be run.
    """
    ran = simulate_works(works, spec.make(), spec.settings(settings))
    return math.fsum(one.job.time_utility.clamped(one.response_s) for one in ran.outcomes)


def instances(requests: int, seed: int, burst: Burst = BURSTS[-1]) -> Iterator[list[Work]]:
    """Yield instances of so many requests, the same for a seed each time."""
    draw = random.Random(1000 * seed + requests)
    for _ in range(INSTANCES):
        arrivals_s = sorted(draw.uniform(0.0, burst.within_s) for _ in range(requests))
        yield [_work(f"r{place}", at_s, draw) for place, at_s in enumerate(arrivals_s)]


def _work(name: str, arrival_s: float, draw: random.Random) -> Work:
    utility = URGENT if draw.random() < _URGENT_SHARE else NORMAL
    job = Job(name, arrival_s, name, "small", "simulated", "", utility)
    first = Part(draw.randint(*_TOKENS), 1.0, 1.0)
    return Work(name, job, name, arrival_s, True, (first, Part(1, 0.001, 0.001)))


EXPERIMENT = Experiment(
    name="optimal",
    question="How far are policies from the best schedule, where exhaustive search can find it?",
    run=run,
    defaults=Options(policies=_POLICIES),
    understands=frozenset(("policies", "seeds", "profile", "jobs")),
)
