"""`pipeline-offline`: requests that come at once, at stages (Ahn et al. 2025, Table 1)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import product

from timely_llm.core.text import quoted
from timely_llm.engines.pipeline_profiles import (
    DEFAULT_PIPELINE,
    PIPELINES,
    SLOW_MBIT,
    SOURCE,
    pipeline_profile,
)
from timely_llm.experiments.contract import (
    AnyOptions,
    Experiment,
    ExperimentError,
    ReportProgress,
    SimulationOptions,
)
from timely_llm.experiments.parallel import run_all
from timely_llm.experiments.policy_spec import PolicySpec, chosen
from timely_llm.experiments.results.document import Row, RowValue, RunDocument
from timely_llm.experiments.results.metrics import plain
from timely_llm.experiments.results.reported import AHN_STOCK, AHN_TABLE_1, AHN_WORKLOADS, in_stages
from timely_llm.experiments.sweep import Scored, title
from timely_llm.experiments.virtual.pipeline import (
    BLOCKING,
    DEFINITIONS,
    LINKS,
    LINKS_ARE,
    MOST_ARE,
    EqualRequests,
    PipelineCase,
    stage_columns,
)
from timely_llm.policies.micro_batches.policy import Mode

LIMITED, UNLIMITED = "limited", "unlimited"
KV = (LIMITED, UNLIMITED)
STOCK = AHN_STOCK
ARMS = (STOCK, *map(in_stages, (Mode.BUDGET_ONLY, Mode.PAPER, Mode.THROTTLE, Mode.CYCLE)))
"""vLLM's own rule, both of the paper's, gLLM's, and this package's."""

_WITH_BUDGETS = (Mode.OFF, Mode.FIXED_CHUNK)
"""Rules without a token budget of their own."""

BUDGET_IS = "most tokens of a step"

KEYS = ("pipeline", "link", "mbit", "kv", "workload", "budget", "policy")
MEASURES = (
    "completion_s",
    "completion_vs_stock",
    "proc_s",
    "idle_s",
    "idle_share",
    "link_share",
    "recomputed_tokens",
    "bound_s",
)


@dataclass(frozen=True)
class OfflineOptions(SimulationOptions):
    """Options of `pipeline-offline`.

    Attributes:
        workloads: requests, tokens of each prompt, tokens of each answer.
        pipelines: names in `PIPELINES`.
        links: of `LINKS`.
        bandwidths: of each link, Mbit/s.
        kv: of `KV`: by the memory of the boxes, or without a limit.
        budgets: most tokens of a step; rules with budgets of their own have the first one only.
    """

    policies: tuple[str, ...] = ARMS
    workloads: tuple[str, ...] = AHN_WORKLOADS
    pipelines: tuple[str, ...] = (DEFAULT_PIPELINE,)
    links: tuple[str, ...] = (BLOCKING,)
    bandwidths: tuple[float, ...] = (SLOW_MBIT,)
    kv: tuple[str, ...] = (LIMITED,)
    budgets: tuple[int, ...] = (2048,)
    profile: str = field(default=DEFAULT_PIPELINE, init=False)
    network_s: float = field(default=0.0, init=False)


def run(options: OfflineOptions, progress: ReportProgress) -> RunDocument:
    """Return what requests that come at once take under each rule.

    Raises:
        TimelyError: an option is not possible.
    """
    return answered(EXPERIMENT, options, cases_of(options), progress)


def answered(
    experiment: Experiment[AnyOptions],
    options: OfflineOptions,
    cases: Sequence[PipelineCase],
    progress: ReportProgress,
) -> RunDocument:
    """Return the document of an experiment with such cases."""
    scored = run_all(score, cases, options.jobs, progress)
    rows = beside_stock([one.row for one in scored])
    known = {
        **DEFINITIONS,
        "workload": "requests that come at once, tokens of each prompt, tokens of each answer",
        "pipeline": "; ".join(f"`{name}`: {PIPELINES[name].about}" for name in options.pipelines),
        "link": LINKS_ARE,
        "mbit": "bandwidth of each link, Mbit/s",
        "kv": f"`{LIMITED}`: as much KV as the boxes have memory for; `{UNLIMITED}`: without limit",
        "budget": BUDGET_IS,
        "completion_vs_stock": f"completion over that of `{STOCK}` with the first budget",
        "bound_s": "seconds that no rule falls below without a KV limit: the busiest stage or link"
        " with all tokens, or one pass for each token of an answer",
    }
    return experiment.document(
        ", ".join(options.pipelines),
        {
            "engine": "simulated in stages, in virtual time, with the serving loop itself",
            "step times": SOURCE,
            "step times known": "at the begin; the rules go on learning them",
            "most micro-batches": MOST_ARE,
        },
        keys=KEYS,
        measures=MEASURES,
        definitions={name: meaning for name, meaning in known.items() if name in rows[0]},
        rows=tuple(rows),
        papers=(AHN_TABLE_1,),
        timelines=tuple(one.timeline for one in scored if one.timeline is not None),
        notes=(
            f"`{STOCK}` is vLLM's rule: a prompt waits for free KV, a decoding sequence evicts the"
            " newest one. Budgets of 256 and 512 are chunks as in Agrawal et al. 2024.",
            "`micro-batches` after a policy's name: `budget-only` is Algorithm 1 of Ahn et al."
            " 2025, `paper` also Algorithm 2, `throttle` the token throttling of Guo et al. 2025,"
            " `fixed-chunk` spreads decoding sequences evenly and fills each micro-batch with"
            " prompts up to the budget, `cycle` is this package's rule.",
        ),
    )


def cases_of(options: OfflineOptions) -> list[PipelineCase]:
    """Return a case for each setting, workload, budget and policy.

    Raises:
        TimelyError: an option is not possible.
    """
    check_words("links", options.links, LINKS)
    check_words("kv", options.kv, KV)
    specs = chosen(options.policies)
    bursts = [EqualRequests.parse(text) for text in options.workloads]
    cases = []
    for name, link, mbit, kv, burst, budget, spec in product(
        options.pipelines, options.links, options.bandwidths, options.kv, bursts, options.budgets,
        specs,
    ):  # fmt: skip
        if not has_run(spec, budget, options.budgets):
            continue
        trace = burst.trace()
        profile = pipeline_profile(name, mbit, link == BLOCKING, kv == LIMITED)
        values: tuple[RowValue, ...] = (name, link, mbit, kv, trace.name, budget, spec.text)
        names = dict(zip(KEYS, values, strict=True))
        cases.append(PipelineCase(trace, spec, profile, names, budget))
    return cases


def has_run(spec: PolicySpec, budget: int, budgets: tuple[int, ...]) -> bool:
    """Return whether a policy runs with a budget: a rule with its own runs with the first one."""
    return budget == budgets[0] or spec.micro_batches in _WITH_BUDGETS


def score(case: PipelineCase) -> Scored:
    """Run a case and return its row, with a timeline if it has a window."""
    run, meter = case.simulate()
    bound_s = EqualRequests.parse(case.trace.name).bound_s(case.profile)
    row = plain({**case.names, **stage_columns(run, meter), "bound_s": bound_s})
    if not case.window:
        return Scored(row, ())
    shown = {key: case.names[key] for key in ("policy", "workload", "link", "mbit")}
    return Scored(row, (), meter.timeline(title(shown)))


def beside_stock(rows: list[Row]) -> list[Row]:
    """Return rows with the completion over that of the stock rule with the first budget."""
    first: dict[tuple[RowValue, ...], RowValue] = {}
    for row in rows:
        if row["policy"] == STOCK:
            first.setdefault(_setting(row), row["completion_s"])
    made = []
    for row in rows:
        stock, own = first.get(_setting(row)), row["completion_s"]
        ratio = own / stock if isinstance(own, float) and isinstance(stock, float) else None
        made.append({**row, "completion_vs_stock": ratio})
    return made


def _setting(row: Row) -> tuple[RowValue, ...]:
    return tuple(row[key] for key in KEYS if key not in ("budget", "policy"))


def check_words(option: str, words: tuple[str, ...], allowed: tuple[str, ...]) -> None:
    """Refuse words that an option does not have.

    Raises:
        ExperimentError: one is unknown, or none is given.
    """
    for word in words or ("",):
        if word not in allowed:
            raise ExperimentError(f"{option} must be of {', '.join(allowed)}, not {quoted(word)}")


EXPERIMENT = Experiment(
    name="pipeline-offline",
    question="How long do requests that come at once take at a model in stages, by the rule of its"
    " micro-batches? (Ahn et al. 2025, Table 1)",
    run=run,
    defaults=OfflineOptions(),
)
