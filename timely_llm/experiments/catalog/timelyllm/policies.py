"""`timelyllm-policies`: segments by arrival, deadline, utility (Ling et al. 2024, Figure 8)."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

from timely_llm.experiments.contract import (
    Experiment,
    PaperOptions,
    RealTimeOptions,
    ReportProgress,
)
from timely_llm.experiments.policy_spec import FIXED, PAPER_BOUND, SERVED
from timely_llm.experiments.realtime import run as realtime
from timely_llm.experiments.results.document import Row, RunDocument
from timely_llm.experiments.results.metrics import UNBOUNDED, plain, relative
from timely_llm.experiments.results.reported import FIGURE_8
from timely_llm.experiments.sweep import KEYS, MEASURES, Scored, document, sweep
from timely_llm.experiments.virtual.durations import NOISY

TIMELY = f"timely:{FIXED}"
"""The policy of Figure 8 that the others are compared with."""

OVER_REQUESTS = {
    "urgent_over_requests": "time utility, below 0 if very late, mean over all urgent requests",
    "normal_over_requests": "the same, mean over all normal requests",
}


@dataclass(frozen=True)
class PoliciesOptions(PaperOptions, RealTimeOptions):
    """Options of `timelyllm-policies`."""

    policies: tuple[str, ...] = (
        *(f"fcfs-segments:{FIXED}", f"edf:{FIXED}", TIMELY),
        *("timely", SERVED, UNBOUNDED, PAPER_BOUND, "deadline"),
    )
    loads: tuple[int, ...] = (1, 2, 4)
    seeds: int = 3


def run(options: PoliciesOptions, progress: ReportProgress) -> RunDocument:
    """Return the results of segmented generation under each order of segments."""
    if options.engine != "simulated":
        return realtime.run(EXPERIMENT, options, ("wid2",), progress)
    scored = [_with_means(one) for one in sweep(options, ("wid2",), progress)]
    return document(
        EXPERIMENT,
        options,
        _compared(scored),
        measures=(*MEASURES[:3], *OVER_REQUESTS, "urgent_vs_timely", *MEASURES[3:]),
        definitions={
            **OVER_REQUESTS,
            "urgent_vs_timely": f"urgent_over_requests over that of {TIMELY}, with the same seed",
        },
        papers=() if options.trace else (FIGURE_8,),
    )


def _with_means(one: Scored) -> Scored:
    """Return results with means over requests, not over kinds, as the script of Figure 8 has."""
    means = {name: _mean(one.task_rows, name.startswith("urgent")) for name in OVER_REQUESTS}
    return replace(one, row=plain({**one.row, **means}))


def _mean(task_rows: Iterable[Row], urgent: bool) -> float:
    worths = [
        (float(row["utility_unclamped"] or 0.0), int(row["requests"] or 0))
        for row in task_rows
        if row["urgent"] is urgent
    ]
    requests = sum(count for _, count in worths)
    return sum(worth * count for worth, count in worths) / requests if requests else math.nan


def _compared(scored: list[Scored]) -> list[Scored]:
    """Return results with urgent means over requests as a share of the urgent means of `TIMELY`."""
    rows = relative((one.row for one in scored), KEYS, "urgent_over_requests", TIMELY)
    name = f"urgent_over_requests_vs_{TIMELY}"
    return [
        replace(one, row=plain({**one.row, "urgent_vs_timely": row.get(name, math.nan)}))
        for one, row in zip(scored, rows, strict=True)
    ]


EXPERIMENT = Experiment(
    name="timelyllm-policies",
    question="How much does the order of segments matter, if all policies generate in segments?"
    " (Ling et al. 2024, Figure 8)",
    run=run,
    defaults=PoliciesOptions(),
    real_time=PoliciesOptions(
        policies=("fcfs-segments", "edf", "timely", "deadline"),
        loads=(1,),
        seeds=1,
        durations=NOISY,
    ),
)
