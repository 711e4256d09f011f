"""`pipeline-plans`: robots and people at a model in stages, by policy and rule of micro-batches."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from timely_llm.engines.paces import STAGED
from timely_llm.engines.pipeline_profiles import (
    DEFAULT_PIPELINE,
    PIPELINES,
    SOURCE,
    pipeline_profile,
)
from timely_llm.engines.simulated import DEFAULT_PROFILE
from timely_llm.experiments.catalog.mixed import KEYS as MIXED_KEYS
from timely_llm.experiments.catalog.mixed import MEASURES as OF_PLANS
from timely_llm.experiments.catalog.mixed import PRESET, TALKS_ARE, people_beside, score
from timely_llm.experiments.catalog.pipeline.offline import BUDGET_IS, check_words, has_run
from timely_llm.experiments.contract import Experiment, ReportProgress, WorkloadOptions
from timely_llm.experiments.parallel import run_all
from timely_llm.experiments.results.document import RunDocument
from timely_llm.experiments.sweep import RunSpec, Scored, cases
from timely_llm.experiments.sweep import document as sweep_document
from timely_llm.experiments.virtual.pipeline import BLOCKING, LINKS, LINKS_ARE, MOST_ARE
from timely_llm.experiments.virtual.simulation import LIMITS

POLICIES = ("stream", "timely", "slice", "deadline")
MODES = ("off", "fixed-chunk", "budget-only", "paper", "throttle", "cycle")
_OTHERS = {name: profile for name, profile in STAGED.items() if name not in PIPELINES}
"""Pipelines with links of their own."""
KEYS = ("pipeline", "link", "mbit", "budget", *MIXED_KEYS)
MEASURES = ("urgent_response_s", *OF_PLANS)


@dataclass(frozen=True)
class StagePlansOptions(WorkloadOptions):
    """Options of `pipeline-plans`.

    Attributes:
        rates: conversations a second.
        pipelines: names in `PIPELINES`, or paces with stages, which have links of their own.
        links: of `LINKS`.
        bandwidths: of each link, Mbit/s.
        budgets: most tokens of a step; rules with budgets of their own have the first one only.
    """

    policies: tuple[str, ...] = tuple(
        policy if mode == "off" else f"{policy}:micro-batches={mode}"
        for policy in POLICIES
        for mode in MODES
    )
    seeds: int = 2
    minutes: float | None = 2.0
    rates: tuple[float, ...] = (0.0, 0.5)
    pipelines: tuple[str, ...] = ("boxes2-llama2-13b", DEFAULT_PIPELINE)
    links: tuple[str, ...] = (BLOCKING,)
    bandwidths: tuple[float, ...] = (1000.0,)
    budgets: tuple[int, ...] = (LIMITS.max_step_tokens,)
    profile: str = field(default=DEFAULT_PROFILE, init=False)
    explain: bool = field(default=False, init=False)


def run(options: StagePlansOptions, progress: ReportProgress) -> RunDocument:
    """Return what robots and people get at each pipeline.

    Raises:
        TimelyError: an option is not possible.
    """
    check_words("links", options.links, LINKS)
    alone = people_beside(cases(options, (PRESET,)), options.loads, options.rates)
    staged = [
        _staged(case, name, link, mbit, budget)
        for name in options.pipelines
        for link in options.links
        for mbit in options.bandwidths
        for budget in options.budgets
        for case in alone
        if has_run(case.spec, budget, options.budgets)
    ]
    rows = run_all(score, staged, options.jobs, progress)
    made = sweep_document(
        EXPERIMENT,
        options,
        [Scored(row, ()) for row in rows],
        keys=KEYS,
        measures=MEASURES,
        definitions={
            "rate": "conversations a second, Poisson",
            "pipeline": "; ".join(f"`{name}`: {about}" for name, about in _about(options)),
            "link": LINKS_ARE,
            "mbit": "bandwidth of each link, Mbit/s",
            "budget": BUDGET_IS,
        },
    )
    setup = {
        **made.setup,
        "step times": SOURCE,
        "conversations": TALKS_ARE,
        "most tokens of a step": ", ".join(map(str, options.budgets)),
        "most micro-batches": MOST_ARE,
    }
    return made.model_copy(update={"profile": ", ".join(options.pipelines), "setup": setup})


def _about(options: StagePlansOptions) -> list[tuple[str, str]]:
    """Return each pipeline and what it is."""
    others = [name for name in options.pipelines if name in _OTHERS]
    return [
        *((name, boxes.about) for name, boxes in PIPELINES.items()),
        *((name, _OTHERS[name].source) for name in others),
    ]


def _staged(case: RunSpec, name: str, link: str, mbit: float, budget: int) -> RunSpec:
    """Return a case at a pipeline, with a budget of tokens for each step."""
    pipeline = _OTHERS.get(name) or pipeline_profile(name, mbit, link == BLOCKING)
    limits = replace(case.settings.limits, max_step_tokens=budget)
    names = {"pipeline": name, "link": link, "mbit": mbit, "budget": budget, **case.names}
    settings = replace(case.settings, pipeline=pipeline, limits=limits)
    return replace(case, settings=settings, names=names)


EXPERIMENT = Experiment(
    name="pipeline-plans",
    question="What are plans worth, and when do people hear the first word, at a model in stages?",
    run=run,
    defaults=StagePlansOptions(),
)
