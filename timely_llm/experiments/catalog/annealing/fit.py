"""`annealing-fit`: orders by a latency predictor with errors (Huang et al. 2025, Figure 10)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from random import Random
from statistics import fmean

from timely_llm.core.clock import VirtualClock
from timely_llm.core.step import StepPlan
from timely_llm.engines.paces import step_time_profile
from timely_llm.engines.sequences import EngineLimits
from timely_llm.engines.simulated import Profile, SimulatedEngine
from timely_llm.experiments.catalog.annealing.order import OrderOptions
from timely_llm.experiments.contract import Experiment, ReportProgress
from timely_llm.experiments.parallel import run_all
from timely_llm.experiments.policy_spec import PolicySpec, chosen
from timely_llm.experiments.results.document import RunDocument
from timely_llm.experiments.results.metrics import MeasuredRow, plain
from timely_llm.experiments.results.reported import HUANG_FIGURE_10
from timely_llm.experiments.virtual.annealing_testbeds import predictor_of
from timely_llm.experiments.virtual.annealing_workload import (
    G_DEFINITIONS,
    WORKLOAD,
    ErroneousLengths,
    g_row,
    mixed,
    prepare,
    requests_of,
    serve,
)
from timely_llm.policies.annealing.latency import LatencyPredictor, TimedStep, fit_latency
from timely_llm.policies.annealing.objective import SizedRequest
from timely_llm.policies.annealing.policy import Annealing

_WORD = "word"
_LIMITS = EngineLimits(
    max_model_len=8192, kv_tokens=10_000_000, max_rows=256, max_step_tokens=100_000
)


@dataclass(frozen=True)
class Rounds:
    """Batches that are profiled: each number of rows with each length of prompts.

    Attributes:
        rows: requests of a batch.
        lengths: tokens of each of its prompts.
        tokens: decode steps after the prompts.
    """

    rows: tuple[int, ...]
    lengths: tuple[int, ...]
    tokens: int

    @property
    def steps(self) -> int:
        """Number of steps."""
        return len(self.rows) * len(self.lengths) * (1 + self.tokens)


MANY = Rounds((1, 2, 4, 8, 16, 32), (100, 250, 500, 1000, 1900), 20)
"""The paper's 1 to 32 rows (§5.1), with lengths below the 2,000 tokens where times are linear."""

FEW = Rounds((1, 4), (100, 500), 3)
"""Hardly more than the four steps of a phase that determine its coefficients."""

PARAMETERS = ("alpha", "beta", "gamma", "delta")
CHANGES = (-0.2, -0.1, -0.05, 0.05, 0.1, 0.2)
BATCH = 4

KNOWN = "none"
"""Name of the predictor as it is, none of its coefficients changed."""

FITS = {f"all, of {rounds.steps} steps": rounds for rounds in (MANY, FEW)}
"""Profiling rounds from which all coefficients are fitted, by name."""

NOISES = (0.0, 0.02, 0.1)
"""Standard deviations of measured step times, as shares of the true ones."""


@dataclass(frozen=True)
class FitOptions(OrderOptions):
    """Options of `annealing-fit`."""

    policies: tuple[str, ...] = ("annealing:reset=on", "annealing:search=exact")
    sizes: tuple[int, ...] = field(default=(10,), init=False)


@dataclass(frozen=True)
class FitCase:
    """The runs of a seed: each parameter with each change."""

    spec: PolicySpec
    profile: str
    count: int
    seed: int


def run(options: FitOptions, progress: ReportProgress) -> RunDocument:
    """Return G with each coefficient of the predictor changed, over G with none changed.

    Further rows have all coefficients from least squares over steps of the simulated engine.
    """
    cases = [
        FitCase(spec, options.profile, count, seed)
        for spec in chosen(options.policies, words=False)
        for count in options.sizes
        for seed in options.each_seed
    ]
    rows = [row for rows in run_all(score, cases, options.jobs, progress) for row in rows]
    return EXPERIMENT.document(
        options.profile,
        {"seeds": options.named_seeds, "batch": BATCH, "lengths": "known", "workload": WORKLOAD},
        keys=("policy", "parameter", "change"),
        measures=("g_vs_fitted", "latency_error", "g", "attainment", "latency_s"),
        definitions={
            **{name: G_DEFINITIONS[name] for name in ("requests", "g", "attainment", "latency_s")},
            "parameter": "the coefficient that is changed, of prefill and of decode; `all`: each"
            " one is fitted by least squares to steps of the simulated engine; `none`: each one is"
            " as the paper or the profile has it",
            "change": "by this share of it; of `all`: the standard deviation of a measured step"
            " time, as a share of the true one",
            "g_vs_fitted": "G over that with the fitted coefficients, with the same seed",
            "latency_error": "predicted seconds of a request in a batch of 4 like it against those"
            " of the simulated engine: mean of |predicted - simulated| / simulated",
        },
        rows=tuple(rows),
        papers=(HUANG_FIGURE_10,),
    )


def score(case: FitCase) -> list[MeasuredRow]:
    """Return the rows of a seed."""
    fitted, profile = predictor_of(case.profile), step_time_profile(case.profile)
    requests = requests_of(mixed(case.count, case.seed))
    base = _served(case, fitted)["g"]
    rows = []
    for parameter, change, predictor in _predictors(fitted, profile, case.seed):
        row = _served(case, predictor)
        row["g_vs_fitted"] = row["g"] / base if base else None
        row["latency_error"] = latency_error(predictor, profile, requests)
        names = {"policy": case.spec.text, "parameter": parameter, "change": change}
        rows.append(plain({**names, "seed": case.seed, **row}))
    return rows


def _predictors(
    fitted: LatencyPredictor, profile: Profile, seed: int
) -> Iterator[tuple[str, float, LatencyPredictor]]:
    """Yield each predictor with its name and its change."""
    for parameter in PARAMETERS:
        for change in CHANGES:
            yield parameter, change, changed(fitted, parameter, change)
    yield KNOWN, 0.0, fitted
    for name, rounds in FITS.items():
        steps = timed_steps(profile, rounds)
        for noise in NOISES:
            yield name, noise, fit_latency(noisy(steps, noise, Random(seed)))


def latency_error(
    predictor: LatencyPredictor, profile: Profile, requests: Sequence[SizedRequest]
) -> float:
    """Return the mean relative error of predicted seconds, each request in a batch like it."""
    errors = []
    for one in requests:
        lengths = one.input_tokens, one.output_tokens
        true_s = batch_s(profile, BATCH, *lengths)
        errors.append(abs(predictor.exec_s(BATCH, *lengths) / true_s - 1.0))
    return fmean(errors)


def changed(predictor: LatencyPredictor, parameter: str, change: float) -> LatencyPredictor:
    """Return a predictor with one coefficient of both phases changed by a share of it."""
    phases = predictor.prefill, predictor.decode
    made = [replace(one, **{parameter: getattr(one, parameter) * (1.0 + change)}) for one in phases]
    return LatencyPredictor(*made)


def _served(case: FitCase, predictor: LatencyPredictor) -> MeasuredRow:
    policy, profile = case.spec.make(), step_time_profile(case.profile)
    trace = mixed(case.count, case.seed)
    prepare(policy, profile, case.seed)
    if isinstance(policy, Annealing):
        policy.predictor = predictor
        policy.output_lengths = ErroneousLengths(trace, 0.0, case.seed)
    return g_row(serve(trace, policy, profile, BATCH), requests=case.count)


@lru_cache(maxsize=8)
def timed_steps(profile: Profile, rounds: Rounds) -> tuple[TimedStep, ...]:
    """Return the steps that a simulated engine makes for some rounds.

    All prompts of a batch are computed in its first step; each further one decodes a token of each
    row.

    Args:
        profile: step times of the engine.
        rounds: the batches.
    """
    steps: list[TimedStep] = []
    for rows in rounds.rows:
        for length in rounds.lengths:
            steps += _batch(profile, rows, length, rounds.tokens)
    return tuple(steps)


def _batch(profile: Profile, rows: int, length: int, tokens: int) -> list[TimedStep]:
    engine = SimulatedEngine(
        profile, lambda key, text: [_WORD] * (tokens + 1), VirtualClock(), _LIMITS
    )
    prompt = engine.tokenizer.ids([_WORD] * length)
    keys = [str(row) for row in range(rows)]
    for key in keys:
        engine.add(key, prompt)
    steps = [TimedStep(rows, rows * length, 0, _seconds(engine, keys, length))]
    for number in range(tokens):
        context = rows * (length + number)
        steps.append(TimedStep(rows, 0, context, _seconds(engine, keys, 1)))
    engine.close()
    return steps


def _seconds(engine: SimulatedEngine, keys: Sequence[str], tokens: int) -> float:
    engine.submit(StepPlan(tuple((key, tokens) for key in keys)))
    return engine.collect().duration_s


def noisy(steps: Sequence[TimedStep], noise: float, draw: Random) -> list[TimedStep]:
    """Return the steps as a clock with noise measures them.

    Args:
        steps: steps with their true times.
        noise: standard deviation of a measured time, as a share of the true one.
        draw: source of random numbers.
    """
    return [
        step._replace(seconds=step.seconds * max(1.0 + draw.gauss(0.0, noise), 0.0))
        for step in steps
    ]


def batch_s(profile: Profile, rows: int, input_tokens: int, output_tokens: int) -> float:
    """Return the seconds of a batch of equal requests.

    The step of the prompts has the first token of each answer, so one decode step fewer than tokens
    follows.

    Args:
        profile: step times of the engine.
        rows: requests of the batch.
        input_tokens: tokens of each prompt.
        output_tokens: tokens of each answer.
    """
    seconds = profile.step_s(0, rows * input_tokens)
    for number in range(output_tokens - 1):
        seconds += profile.step_s(rows, 0, rows * (input_tokens + number))
    return seconds


EXPERIMENT = Experiment(
    name="annealing-fit",
    question="What do errors of the fitted coefficients cost an order by annealing?"
    " (Huang et al. 2025, Figure 10)",
    run=run,
    defaults=FitOptions(seeds=10),
)
