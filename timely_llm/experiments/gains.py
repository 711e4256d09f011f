"""What policies gain over one of them, in the same setting with the same seed."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from timely_llm.experiments.metrics import Row, plain, relative

UNBOUNDED = "timely:rows=256:admissions=8"
"""TimelyLLM without the limits of its code: who gains by the policy, and who by a larger batch?"""


def gains(rows: Iterable[Row], keys: Sequence[str], over: str) -> list[Row]:
    """Return rows with the columns `utility_gain` and `waiting_s_vs_POLICY`.

    Args:
        rows: of several policies, as `metrics.row` or `task_rows` make them.
        keys: columns beside `policy` and `seed` that name a setting.
        over: the policy that gains nothing; without a row of it nothing is known.
    """
    rows = [dict(row) for row in rows]
    names = [key for key in (*keys, "seed") if key != "policy"]
    base = {_of(row, names): row["utility_unclamped"] for row in rows if row["policy"] == over}
    for row in rows:
        row["utility_gain"] = row["utility_unclamped"] - base.get(_of(row, names), math.nan)
    return [plain(row) for row in relative(rows, keys, "waiting_s", over)]


def definition(over: str) -> dict[str, str]:
    """Return what the column means that compares with a policy by a difference."""
    meaning = f"utility_unclamped less that of {over} in the same setting, with the same seed"
    return {"utility_gain": meaning}


def _of(row: Row, names: Sequence[str]) -> tuple[object, ...]:
    return tuple(row[name] for name in names)
