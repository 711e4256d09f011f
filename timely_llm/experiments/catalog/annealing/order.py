"""`annealing-order`: requests of two service levels at once (Huang et al. 2025, §5.2)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from timely_llm.engines.paces import step_time_profile
from timely_llm.experiments.contract import Experiment, ExperimentError, ReportProgress, SeedOptions
from timely_llm.experiments.parallel import run_all
from timely_llm.experiments.policy_spec import PolicySpec, chosen
from timely_llm.experiments.results.document import Paper, RunDocument
from timely_llm.experiments.results.metrics import MeasuredRow, relative_gains
from timely_llm.experiments.results.reported import HUANG_FIGURE_7, HUANG_FIGURES_12_TO_18
from timely_llm.experiments.virtual.annealing_testbeds import (
    PROFILE,
    RULE,
    TESTBEDS,
    DerivedTestbed,
    profile_of,
)
from timely_llm.experiments.virtual.annealing_workload import (
    G_DEFINITIONS,
    MOST_TRIED,
    WORKLOAD,
    WORKLOAD_OVER_TIME,
    g_row,
    mixed,
    prepare,
    serve,
)

BATCHES = (1, 2, 4)
POLICIES = (
    "fcfs",
    "sjf",
    "annealing:search=deadline",
    "annealing:accept=literal",
    "annealing",
    "annealing:reset=on",
    "annealing:reset=on:static=off",
    "annealing:reset=on:lengths=quantile",
    "annealing:reset=on:lengths=quantile:objective=worth:static=off",
    "annealing:search=exhaustive",
    "annealing:search=exact",
    "deadline",
)
KEYS = ("batch", "requests", "policy")
BASELINE = "fcfs"
_GAINS_OF = {"g": "g_gain", "attainment": "attainment_gain", "latency_s": "latency_gain"}
GAINS = {
    "g_gain": f"G over that of {BASELINE}, less 1, of means over the seeds, which are paired",
    "attainment_gain": f"attainment over that of {BASELINE}, less 1, of means over the seeds, which"
    " are paired",
    "latency_gain": f"latency over that of {BASELINE}, less 1, of means over the seeds, which are"
    " paired",
    "latency_change": f"latency over that of {BASELINE} with the same seed, less 1",
    "attainment_points": f"attainment less that of {BASELINE}, with the same seed",
}
LINEARISED = (
    "Gains are ratios of means over the seeds. Their intervals are those of the linearised ratio of"
    " paired seeds (Cochran 1977, chapter 6)."
)
NOTES = (
    "Searches know predicted lengths, a draw from the Gaussian of 200 earlier answers of the type"
    " unless the policy says `lengths=quantile`. So the best order of the search is not the best"
    " order of the true lengths.",
    "Batches are static (Huang et al. 2025, Eq. 11) under `annealing` unless the policy says"
    " `static=off`, and continuous under the other policies.",
    "`deadline` has learned from the same earlier answers; `fcfs` predicts nothing.",
)


@dataclass(frozen=True)
class OrderOptions(SeedOptions):
    """Options of `annealing-order`.

    Attributes:
        policies: in the notation of `policy_spec`.
        profile: name of the step-time profile.
        sizes: requests that come at once.
        jobs: processes that run at once.
    """

    policies: tuple[str, ...] = POLICIES
    profile: str = PROFILE
    sizes: tuple[int, ...] = (4, 6, 8, 10)
    jobs: int = 2


@dataclass(frozen=True)
class FigureOptions(OrderOptions):
    """Options of experiments that also run on the testbeds of other figures.

    Attributes:
        figures: figures of Huang et al. 2025 with testbeds of their own, which take the place of
            the profile; empty: the profile.

    Raises:
        ExperimentError: a figure has no testbed of its own, or a profile stands beside figures.
    """

    figures: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        for figure in self.figures:
            if figure not in TESTBEDS:
                known = f"{min(TESTBEDS)} to {max(TESTBEDS)}"
                raise ExperimentError(f"Figure {figure} has no testbed of its own: only {known}")
        if self.figures and self.profile != PROFILE:
            raise ExperimentError("figures have step times of their own: leave out the profile")

    @property
    def testbeds(self) -> list[DerivedTestbed]:
        """Testbeds of the figures."""
        return [TESTBEDS[figure] for figure in self.figures]

    @property
    def keys(self) -> tuple[str, ...]:
        """Columns that name a setting."""
        return ("figure", *KEYS) if self.figures else KEYS

    @property
    def step_times(self) -> str:
        """Origin of the step times."""
        return RULE if self.figures else step_time_profile(self.profile).source

    @property
    def definitions(self) -> dict[str, str]:
        """Meaning of the column `figure`, if there is one."""
        titles = "; ".join(f"{one.figure}: {one.title}" for one in self.testbeds)
        return {"figure": f"figure of Huang et al. 2025; {titles}"} if titles else {}

    @property
    def sources(self) -> tuple[str, ...]:
        """Notes with the origin of each testbed's step times."""
        return tuple(f"Figure {one.figure}: {one.profile.source}." for one in self.testbeds)


@dataclass(frozen=True)
class ArrivalOptions(FigureOptions):
    """Options of `annealing-order`.

    Attributes:
        rates: requests a second, at Poisson times; empty: all come at once.

    Raises:
        ExperimentError: a rate is 0, a figure has no testbed, or a profile stands beside figures.
    """

    rates: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        if not all(self.rates):
            raise ExperimentError("rates must be above 0 requests a second")

    @property
    def keys(self) -> tuple[str, ...]:
        """Columns that name a setting."""
        return ("rate", *super().keys) if self.rates else super().keys

    @property
    def definitions(self) -> dict[str, str]:
        """Meaning of the columns `figure` and `rate`, if they are there."""
        if not self.rates:
            return super().definitions
        return super().definitions | {
            "rate": "requests a second, at Poisson times",
            "requests": "requests of a run",
        }

    @property
    def papers(self) -> tuple[Paper, ...]:
        """What the paper reports of the same requests."""
        if self.rates:
            return ()
        return (HUANG_FIGURES_12_TO_18 if self.figures else HUANG_FIGURE_7,)


@dataclass(frozen=True)
class OrderCase:
    """One run: a policy, the largest batch, the number of requests, a seed.

    It may have a figure, and requests a second.
    """

    spec: PolicySpec
    profile: str
    batch: int
    count: int
    seed: int
    figure: int | None = None
    rate: float | None = None


def run(options: ArrivalOptions, progress: ReportProgress) -> RunDocument:
    """Return G and its parts under each policy, by batch and number of requests.

    All requests come at once, unless there are rates. Exhaustive search takes part up to the size
    that it searches.
    """
    cases = [
        OrderCase(spec, options.profile, batch, count, seed, figure, rate)
        for rate in options.rates or (None,)
        for figure in options.figures or (None,)
        for batch in BATCHES
        for count in options.sizes
        for spec in chosen(options.policies, words=False)
        for seed in options.each_seed
        if searches(spec, count, batch)
    ]
    rows = run_all(score, cases, options.jobs, progress)
    return EXPERIMENT.document(
        options.profile,
        {
            "seeds": options.named_seeds, "step times": options.step_times,
            "workload": WORKLOAD_OVER_TIME if options.rates else WORKLOAD,
        },
        keys=options.keys,
        measures=(
            "g", "g_gain", "attainment", "attainment_points", "attainment_gain", "chat_attainment",
            "latency_s", "latency_gain", "latency_change",
        ),
        definitions={**G_DEFINITIONS, **GAINS, **options.definitions},
        rows=compared(rows, options.keys),
        papers=options.papers,
        notes=(*NOTES, LINEARISED, *options.sources),
    )  # fmt: skip


def searches(spec: PolicySpec, count: int, batch: int) -> bool:
    """Return whether a policy is run: exhaustive search for few requests only, as in the paper."""
    return spec.values.get("search") != "exhaustive" or count <= (MOST_TRIED if batch == 1 else 6)


def compared(rows: Sequence[MeasuredRow], keys: Sequence[str]) -> tuple[MeasuredRow, ...]:
    """Return rows with the columns of `GAINS`."""
    for measure, gain in _GAINS_OF.items():
        rows = relative_gains(rows, keys, measure, BASELINE, gain)
    names = (*(key for key in keys if key != "policy"), "seed")
    base = {tuple(row[name] for name in names): row for row in rows if row["policy"] == BASELINE}
    return tuple(_beside(row, base.get(tuple(row[name] for name in names))) for row in rows)


def _beside(row: MeasuredRow, theirs: MeasuredRow | None) -> MeasuredRow:
    """Return a row with its differences from the baseline's of its seed."""
    return {
        **row,
        "attainment_points": theirs and row["attainment"] - theirs["attainment"],
        "latency_change": theirs and row["latency_s"] / theirs["latency_s"] - 1.0,
    }


def score(case: OrderCase) -> MeasuredRow:
    """Return the row of a run."""
    policy, profile = case.spec.make(), profile_of(case.profile, case.figure)
    prepare(policy, profile, case.seed)
    ran = serve(mixed(case.count, case.seed, case.rate), policy, profile, case.batch)
    return g_row(
        ran, rate=case.rate, figure=case.figure, batch=case.batch, requests=case.count,
        policy=case.spec.text, seed=case.seed,
    )  # fmt: skip


EXPERIMENT = Experiment(
    name="annealing-order",
    question="What does an order by annealing gain when requests of two service levels come at"
    " once? (Huang et al. 2025, Figures 7 and 12 to 18)",
    run=run,
    defaults=ArrivalOptions(),
)
