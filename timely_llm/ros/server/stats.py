"""The statistics of several servers as those of one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from timely_llm import msg

MEANS = {
    "step_time": "steps",
    "predicted_step_time": "steps",
    "utility": "requests",
    "duration_error": "segments",
    "duration_bias": "segments",
    "slo_met": "chunks",
    "stalled": "chunks",
}
"""Fields of which the mean counts, weighted by another field."""

LARGEST = ("response_p50", "response_p95", "ttft_p50", "ttft_p95")
"""Fields of which the largest counts: percentiles of several servers have no sum."""


def merged(stats: Sequence[msg.ServerStats]) -> msg.ServerStats:
    """Return the statistics of several servers.

    They are sums of counts, and means of shares and times. Lists of stages and links follow each
    other, in the order of the servers.
    """
    made = msg.ServerStats()
    for field, kind in msg.ServerStats.get_fields_and_field_types().items():
        values: list[Any] = [getattr(one, field) for one in stats]
        if field == "stamp" or not values:
            continue
        if field in LARGEST:
            value = max(values)
        elif field in MEANS:
            weights = [getattr(one, MEANS[field]) for one in stats]
            total = sum(weights)
            value = sum(v * w for v, w in zip(values, weights, strict=True)) / (total or 1)
        elif kind.startswith("sequence"):
            value = [one for each in values for one in each]
        else:
            value = sum(values)
        setattr(made, field, float(value) if kind == "double" else value)
    return made
