"""`row-cost`: how much of a result depends on the seconds of a row, which no paper states."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from timely_llm.engines.simulated import DEFAULT_PROFILE
from timely_llm.experiments.contract import Experiment, ReportProgress, WorkloadOptions
from timely_llm.experiments.parallel import run_all
from timely_llm.experiments.policy_spec import SERVED
from timely_llm.experiments.results.document import RunDocument
from timely_llm.experiments.results.metrics import UNBOUNDED
from timely_llm.experiments.sweep import RunSpec, cases, document, score

ROWS_MS = (0.15, 0.4, 1.2)
"""Milliseconds of a row: the profile's; the time to read the KV of a prompt of 2,900 tokens, 380 MB
at 1 TB/s; and three times that."""

MEASURES = (
    "utility",
    "urgent_utility",
    "normal_utility",
    "share_first",
    "share_finished",
    "urgent_response_s",
    "waiting_s",
)


@dataclass(frozen=True)
class RowCostOptions(WorkloadOptions):
    """Options of `row-cost`. The profile is that of Llama 3 8B: its row cost is in question."""

    policies: tuple[str, ...] = ("fcfs", "stream", "timely", SERVED, UNBOUNDED, "deadline")
    profile: str = field(default=DEFAULT_PROFILE, init=False)
    explain: bool = field(default=False, init=False)


def run(options: RowCostOptions, progress: ReportProgress) -> RunDocument:
    """Return the results of each policy with each cost of a row."""
    specs = [_with_rows(case, row_ms) for case in cases(options, ("wid2",)) for row_ms in ROWS_MS]
    return document(
        EXPERIMENT,
        options,
        run_all(score, specs, options.jobs, progress),
        keys=("workload", "load", "policy", "row_ms"),
        measures=MEASURES,
        definitions={"row_ms": "milliseconds that a step takes longer for each sequence in it"},
        notes=(
            "Ling et al. 2024, Table 1, times single requests: it does not state the cost of a"
            " row. 0.15 ms is the profile's own.",
        ),
    )


def _with_rows(case: RunSpec, row_ms: float) -> RunSpec:
    """Return a case with another cost of a row, and without a timeline."""
    profile = replace(case.settings.profile, row_s=row_ms / 1e3)
    names = {**case.names, "row_ms": row_ms}
    settings = replace(case.settings, profile=profile)
    return replace(case, settings=settings, names=names, timeline_s=0.0)


EXPERIMENT = Experiment(
    name="row-cost",
    question="How much do the results depend on the seconds that a row adds to a step?",
    run=run,
    defaults=RowCostOptions(),
)
