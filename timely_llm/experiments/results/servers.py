"""Rows of runs with several servers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from timely_llm.experiments.results.document import RowValue
from timely_llm.experiments.results.fleet import in_time
from timely_llm.experiments.results.lanes import WORTH, run_row
from timely_llm.experiments.results.metrics import MeasuredRow
from timely_llm.experiments.virtual.outcome import JobOutcome, Run

DEFINITIONS: Mapping[str, str] = {
    "servers": "number of servers, or what they are",
    "dispatcher": "rule that assigns requests to servers",
    "worth": f"what the requests' own weights say they earned: {', and '.join(WORTH.values())}",
    "plan_attainment": "share of the plan requests with a first action within the expected response"
    " time: 0.2 s for urgent tasks, 1 s for others",
    "goodput": "plan requests with a first action in time, over the seconds from asking to the last"
    " segment in sum (G of Huang et al. 2025, Eq. 2)",
}


def servers_row(run: Run, **names: Any) -> MeasuredRow:
    """Return one flat row: the columns `names`, those of `run_row`, and those of `DEFINITIONS`."""
    counted = [outcome for outcome in run.outcomes if outcome.work.measured]
    seconds = math.fsum(_completion_s(outcome) for outcome in counted if outcome.segments)
    met = [in_time(outcome) for outcome in counted]
    row = run_row(run, **names)
    return {
        **row,
        "worth": math.fsum(row.get(part) or 0.0 for part in WORTH),
        "plan_attainment": fmean(met) if met else math.nan,
        "goodput": sum(met) / seconds if seconds else math.nan,
    }


def beside(
    rows: Sequence[MeasuredRow], keys: Sequence[str], measure: str, to: str, **settings: RowValue
) -> list[MeasuredRow]:
    """Return rows with the column `MEASURE_vs_DISPATCHER`: a measure over that of a dispatcher.

    Args:
        rows: of several dispatchers.
        keys: columns that name a setting, `dispatcher` among them.
        measure: the column.
        to: the dispatcher; without a row of it there is no column.
        settings: columns in which the dispatcher has another value than the row; their names stand
            behind its own, as in `MEASURE_vs_DISPATCHER_moves=False`.
    """
    others = [key for key in (*keys, "seed") if key != "dispatcher" and key not in settings]
    fixed = {"dispatcher": to, **settings}
    base = {
        tuple(row[key] for key in others): row[measure]
        for row in rows
        if all(row[name] == value for name, value in fixed.items())
    }
    if not base:
        return list(rows)
    name = "_".join([f"{measure}_vs_{to}", *(f"{key}={value}" for key, value in settings.items())])
    return [{**one, name: one[measure] / base[tuple(one[k] for k in others)]} for one in rows]


def _completion_s(outcome: JobOutcome) -> float:
    return outcome.segments[-1].received_s - outcome.work.arrival_s
