"""`pipeline-online`: requests at Poisson times at a model in stages (Ahn et al. 2025, Figure 3)."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import product

from timely_llm.engines.pipeline_profiles import (
    DEFAULT_PIPELINE,
    SLOW_MBIT,
    SOURCE,
    pipeline_profile,
)
from timely_llm.experiments.catalog.pipeline.offline import (
    ARMS,
    BUDGET_IS,
    check_words,
    has_run,
)
from timely_llm.experiments.contract import (
    Experiment,
    ReportProgress,
    SeedOptions,
    SimulationOptions,
)
from timely_llm.experiments.parallel import run_all
from timely_llm.experiments.policy_spec import chosen
from timely_llm.experiments.results.document import Row, RowValue, RunDocument
from timely_llm.experiments.results.metrics import plain
from timely_llm.experiments.results.reported import AHN_FIGURE_3
from timely_llm.experiments.results.talks import DEFINITIONS as OF_TALKS
from timely_llm.experiments.results.talks import talk_row
from timely_llm.experiments.virtual.outcome import ConversationOutcome
from timely_llm.experiments.virtual.pipeline import (
    BLOCKING,
    DEFINITIONS,
    LINKS,
    LINKS_ARE,
    MOST_ARE,
    PipelineCase,
    poisson,
    stage_columns,
)
from timely_llm.experiments.virtual.simulation import LIMITS

PROMPTS, ANSWERS = (512, 2048), (256, 1024)
WINDOWS, WINDOW_S = 6, 240.0
"""Windows of arrivals, and the seconds of each; the last one has all later arrivals."""
ALL = "all"

KEYS = ("link", "mbit", "rate", "requests", "budget", "arrived", "policy")
_OF_TALKS = ("attainment", "ttft_attainment", "tpot_attainment", "ttft_p95_s", "completion_s")
MEASURES = (*_OF_TALKS, "idle_share", "recomputed_tokens")


@dataclass(frozen=True)
class OnlineOptions(SeedOptions, SimulationOptions):
    """Options of `pipeline-online`.

    Attributes:
        requests: numbers of requests; each is a run.
        rates: requests a second; each is a run.
        ttft_s: seconds to the first token that each request asks for.
        tpot_s: mean seconds of each later token that it asks for.
        links: of `LINKS`.
        bandwidths: of each link, Mbit/s.
        budgets: most tokens of a step; rules with budgets of their own have the first one only.
    """

    policies: tuple[str, ...] = ARMS
    requests: tuple[int, ...] = (128,)
    rates: tuple[float, ...] = (0.1,)
    ttft_s: float = 15.0
    tpot_s: float = 0.2
    links: tuple[str, ...] = LINKS
    bandwidths: tuple[float, ...] = (SLOW_MBIT,)
    budgets: tuple[int, ...] = (LIMITS.max_step_tokens,)
    seeds: int = 2
    profile: str = field(default=DEFAULT_PIPELINE, init=False)
    network_s: float = field(default=0.0, init=False)


def run(options: OnlineOptions, progress: ReportProgress) -> RunDocument:
    """Return which share of requests met their service level, by the time at which they came.

    Raises:
        TimelyError: an option is not possible.
    """
    check_words("links", options.links, LINKS)
    parts = run_all(score, list(_cases(options)), options.jobs, progress)
    rows = [row for part in parts for row in part]
    known = {
        **{name: OF_TALKS[name] for name in _OF_TALKS},
        **DEFINITIONS,
        "completion_s": OF_TALKS["completion_s"],
        "span_s": "from the first request to the end of the last answer, seconds",
        "link": LINKS_ARE,
        "mbit": "bandwidth of each link, Mbit/s",
        "rate": "requests a second, Poisson",
        "requests": "requests of the run",
        "budget": BUDGET_IS,
        "arrived": "seconds in which the requests of a row came, or `all`",
        "count": "requests of the row",
    }
    return EXPERIMENT.document(
        DEFAULT_PIPELINE,
        {
            "engine": "simulated in stages, in virtual time, with the serving loop itself",
            "step times": SOURCE,
            "workload": f"prompts of {PROMPTS[0]} to {PROMPTS[1]} tokens, answers of {ANSWERS[0]}"
            f" to {ANSWERS[1]}, each length as likely; each request declares {ANSWERS[1]}",
            "time to the first token asked for (s)": options.ttft_s,
            "mean time of each later token asked for (s)": options.tpot_s,
            "most micro-batches": MOST_ARE,
            "seeds": options.named_seeds,
        },
        keys=KEYS,
        measures=MEASURES,
        definitions={name: meaning for name, meaning in known.items() if name in rows[0]},
        rows=tuple(rows),
        papers=(AHN_FIGURE_3,),
    )


def _cases(options: OnlineOptions) -> Iterator[PipelineCase]:
    """Yield a case for each setting, policy and seed."""
    for link, mbit, rate, requests, budget, spec, seed in product(
        options.links, options.bandwidths, options.rates, options.requests, options.budgets,
        chosen(options.policies), options.each_seed,
    ):  # fmt: skip
        if not has_run(spec, budget, options.budgets):
            continue
        trace = poisson(requests, rate, PROMPTS, ANSWERS, (options.ttft_s, options.tpot_s), seed)
        values: tuple[RowValue, ...] = (link, mbit, rate, requests, budget, ALL, spec.text, seed)
        names = dict(zip((*KEYS, "seed"), values, strict=True))
        profile = pipeline_profile(mbit=mbit, blocking=link == BLOCKING)
        yield PipelineCase(trace, spec, profile, names, budget)


def score(case: PipelineCase) -> list[Row]:
    """Run a case and return a row for each window of arrivals, and one for all of them."""
    made, meter = case.simulate()
    columns = stage_columns(made, meter)
    rows = []
    for arrived, talks in _windows(made.conversations):
        of_talks = talk_row(talks)
        rows.append(
            plain(
                {
                    **case.names,
                    "arrived": arrived,
                    "count": len(talks),
                    "span_s": columns["completion_s"],
                    **{name: columns[name] for name in ("idle_share", "recomputed_tokens")},
                    **{name: of_talks[name] for name in _OF_TALKS},
                }
            )
        )
    return rows


def _windows(
    talks: tuple[ConversationOutcome, ...],
) -> Iterator[tuple[str, list[ConversationOutcome]]]:
    """Yield the requests of each window that has any, and all of them."""
    for number in range(WINDOWS):
        low = number * WINDOW_S
        high = low + WINDOW_S if number < WINDOWS - 1 else math.inf
        found = [one for one in talks if low <= one.conversation.arrival_s < high]
        if found:
            end = f"{high:g}" if high < math.inf else "end"
            yield f"{low:g}-{end}", found
    yield ALL, list(talks)


EXPERIMENT = Experiment(
    name="pipeline-online",
    question="Which share of requests meets its service level at a model in stages, by the rule of"
    " its micro-batches? (Ahn et al. 2025, Figure 3)",
    run=run,
    defaults=OnlineOptions(),
)
