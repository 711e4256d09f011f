"""`optimal`: policies beside the best schedule, on instances small enough to search."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from statistics import fmean

from timely_llm.core.time_utility import NORMAL, URGENT, TimeUtility
from timely_llm.engines.paces import step_time_profile
from timely_llm.engines.simulated import DEFAULT_PROFILE, Profile
from timely_llm.experiments.contract import Experiment, ReportProgress, SeedOptions
from timely_llm.experiments.parallel import run_all
from timely_llm.experiments.policy_spec import SERVED, PolicySpec, chosen
from timely_llm.experiments.results.document import Row, RunDocument
from timely_llm.experiments.results.metrics import UNBOUNDED
from timely_llm.experiments.virtual.simulation import SimulationSettings, simulate_works
from timely_llm.experiments.virtual.workload import JobInstance, SegmentSpec
from timely_llm.traces.model import Job

_ENOUGH = 1e-3
"""The search ignores schedules that are better by less than this utility."""


def best_utility(
    works: Sequence[JobInstance], settings: SimulationSettings, known: float = 0.0
) -> float:
    """Return the utility of the best schedule of a few requests.

    Args:
        works: the requests.
        settings: their prompts and the step times.
        known: a utility that some schedule reaches; the search skips what cannot exceed it.
    """
    return _Search(works, settings.profile, settings.own_tokens, known).best()


_Running = tuple[tuple[int, int], ...]
"""(request, tokens to go) of the requests that take part in every step."""


class _Search:
    """Branch and bound over the requests that join each step."""

    def __init__(
        self, works: Sequence[JobInstance], profile: Profile, prompt_tokens: int, known: float
    ) -> None:
        self._arrivals_s = [work.arrival_s for work in works]
        self._utilities: list[TimeUtility] = [work.job.time_utility for work in works]
        self._tokens = [work.parts[0].tokens for work in works]
        self._profile = profile
        self._prompt_tokens = prompt_tokens
        self._best = known

    def best(self) -> float:
        """Return the highest utility."""
        self._look(min(self._arrivals_s), 0.0, tuple(range(len(self._tokens))), ())
        return self._best

    def _look(self, now: float, earned: float, unbegun: tuple[int, ...], running: _Running) -> None:
        """Search all schedules that continue from this state; `earned` is its utility."""
        if not unbegun and not running:
            self._best = max(self._best, earned)
            return
        if earned + self._bound(now, unbegun, running) <= self._best + _ENOUGH:
            return
        waiting = [one for one in unbegun if self._arrivals_s[one] <= now]
        for joining in _subsets(waiting):
            if joining or running:
                self._step(now, earned, unbegun, running, joining)
        later_s = [self._arrivals_s[one] for one in unbegun if self._arrivals_s[one] > now]
        if not running and later_s:
            self._look(min(later_s), earned, unbegun, ())

    def _step(
        self,
        now: float,
        earned: float,
        unbegun: tuple[int, ...],
        running: _Running,
        joining: Sequence[int],
    ) -> None:
        """Search all schedules in which `joining` join the next step."""
        end_s = now + self._profile.step_s(len(running), len(joining) * self._prompt_tokens)
        left = [(one, tokens - 1) for one, tokens in running]
        left += [(one, self._tokens[one] - 1) for one in joining]
        earned += math.fsum(self._utility(one, end_s) for one, tokens in left if not tokens)
        going = tuple((one, tokens) for one, tokens in left if tokens)
        self._look(end_s, earned, tuple(one for one in unbegun if one not in joining), going)

    def _bound(self, now: float, unbegun: tuple[int, ...], running: _Running) -> float:
        """Return an upper bound of the utility to come: as if each request had the engine alone."""
        step_s = self._profile.step_s(1)
        total = 0.0
        for one, tokens in running:
            total += self._utility(one, now + tokens * step_s)
        first_s = self._profile.step_s(0, self._prompt_tokens)
        for one in unbegun:
            begin_s = max(now, self._arrivals_s[one])
            total += self._utility(one, begin_s + first_s + (self._tokens[one] - 1) * step_s)
        return total

    def _utility(self, one: int, ready_s: float) -> float:
        return self._utilities[one].clamped(ready_s - self._arrivals_s[one])


def _subsets(waiting: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Yield all subsets, the largest ones first."""
    for size in range(len(waiting), -1, -1):
        yield from combinations(waiting, size)


REQUESTS = (5, 6, 7)
INSTANCES = 10
"""Instances of each number of requests, for each seed."""

_TOKENS = (4, 9)
_URGENT_SHARE = 0.5
_POLICIES = ("fcfs", "stream", "timely", SERVED, UNBOUNDED, "deadline")
_DEFINITIONS = {
    "prompt_tokens": "tokens of each prompt, computed for each request",
    "within_s": "seconds within which all requests of an instance arrive",
    "requests": "plan requests of an instance",
    "share_of_best": "utility over that of the best schedule, mean over instances",
    "worst_share": "the same, of the instance in which it is lowest",
    "utility": "clamped time utility of an instance's first segments, summed, mean over instances",
    "best_utility": "the same of the best schedule",
    "instances": "instances behind a row",
}


@dataclass(frozen=True)
class BurstSpec:
    """The difficulty of an instance.

    Attributes:
        prompt_tokens: tokens of each prompt, none of them cached.
        within_s: seconds within which all requests arrive.
    """

    prompt_tokens: int
    within_s: float


BURSTS = (BurstSpec(110, 0.4), BurstSpec(400, 0.0), BurstSpec(400, 0.1))
"""The prompts of drones, and two bursts that are too dense for all requests to be served in time.

In the second one all requests are there at once, so that a policy knows as many of them as the best
schedule does. The third one shows what knowing arrivals in advance is worth.
"""


@dataclass(frozen=True)
class InstanceSet:
    """Instances of one kind, size and seed."""

    specs: tuple[PolicySpec, ...]
    settings: SimulationSettings
    burst: BurstSpec
    requests: int
    seed: int


@dataclass(frozen=True)
class OptimalOptions(SeedOptions):
    """Options of `optimal`.

    Attributes:
        policies: in the notation of `policy_spec`.
        profile: name of the step-time profile.
        jobs: processes that run at once.
    """

    policies: tuple[str, ...] = _POLICIES
    profile: str = DEFAULT_PROFILE
    jobs: int = 2


def run(options: OptimalOptions, progress: ReportProgress) -> RunDocument:
    """Return the share of the best utility that each policy reaches on small instances.

    An instance has five to seven requests in a burst. Half of them are urgent. A first segment has
    4 to 9 tokens, and only first segments have utility. The best schedule (`best_utility`) knows
    all arrivals and lengths in advance. Policies do not.
    """
    settings = SimulationSettings(profile=step_time_profile(options.profile), network_s=0.0)
    specs = tuple(chosen(options.policies))
    cases = [
        InstanceSet(specs, replace(settings, own_tokens=burst.prompt_tokens), burst, requests, seed)
        for burst in BURSTS
        for requests in REQUESTS
        for seed in options.each_seed
    ]
    return EXPERIMENT.document(
        options.profile,
        {"seeds": options.named_seeds, "instances": INSTANCES},
        keys=("prompt_tokens", "within_s", "requests", "policy"),
        measures=("share_of_best", "worst_share", "utility", "best_utility"),
        definitions=_DEFINITIONS,
        rows=tuple(row for rows in run_all(score, cases, options.jobs, progress) for row in rows),
        notes=(
            "The best schedule knows all arrivals and the lengths of all segments in advance, which"
            " no policy can know.",
            "In the best schedule, a request that has begun is never suspended, and the tokens"
            " after its first segment cost nothing.",
        ),
    )


def score(case: InstanceSet) -> list[Row]:
    """Return the rows of a case, one for each policy."""
    earned: list[list[float]] = []
    bests: list[float] = []
    for works in instances(case.requests, case.seed, case.burst):
        earned.append([utility(works, spec, case.settings) for spec in case.specs])
        bests.append(best_utility(works, case.settings, max(earned[-1])))
    rows: list[Row] = []
    for spec, got in zip(case.specs, zip(*earned, strict=True), strict=True):
        # Where the engine is too slow for any request, the best utility is 0.
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


def utility(works: Sequence[JobInstance], spec: PolicySpec, settings: SimulationSettings) -> float:
    """Return the utility of first segments under a policy."""
    ran = simulate_works(works, spec.make(), spec.settings(settings))
    return math.fsum(one.job.time_utility.clamped(one.response_s) for one in ran.outcomes)


def instances(
    requests: int, seed: int, burst: BurstSpec = BURSTS[-1]
) -> Iterator[list[JobInstance]]:
    """Yield instances of `requests` requests; the seed determines them."""
    draw = random.Random(1000 * seed + requests)
    for _ in range(INSTANCES):
        arrivals_s = sorted(draw.uniform(0.0, burst.within_s) for _ in range(requests))
        yield [_work(f"r{place}", at_s, draw) for place, at_s in enumerate(arrivals_s)]


def _work(name: str, arrival_s: float, draw: random.Random) -> JobInstance:
    utility = URGENT if draw.random() < _URGENT_SHARE else NORMAL
    job = Job(name, arrival_s, name, "small", "simulated", "", utility)
    first = SegmentSpec(draw.randint(*_TOKENS), 1.0, 1.0)
    return JobInstance(name, job, name, arrival_s, True, (first, SegmentSpec(1, 0.001, 0.001)))


EXPERIMENT = Experiment(
    name="optimal",
    question="How far are policies from the best schedule, where exhaustive search can find it?",
    run=run,
    defaults=OptimalOptions(),
    reasons={"trace": "since it composes requests that are few enough for a search of all"},
)
