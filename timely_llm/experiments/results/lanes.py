"""Rows of runs with plans, with conversations, or with both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from timely_llm.experiments.results import metrics, talks
from timely_llm.experiments.results.metrics import MeasuredRow
from timely_llm.experiments.virtual.outcome import ConversationOutcome, Run

TALK_COLUMNS: Mapping[str, str] = {
    "requests": "conversations",
    "share_finished": "share_answered",
    "share_first": "share_first_token",
} | {
    name: name
    for name in (
        "attainment",
        "rt_attainment",
        "nrt_attainment",
        "ttft_attainment",
        "tpot_attainment",
        "objective",
        "qoe",
        "completion_s",
        "share_refused",
        "ttft_p95_s",
        "max_gap_s",
        "stalled_s",
        "max_stall_s",
    )
}
"""What columns of `talk_row` are called beside those of plans."""

TALK_DEFINITIONS = {new: talks.DEFINITIONS[old] for old, new in TALK_COLUMNS.items()}

TALK_MEASURES = (
    "attainment",
    "rt_attainment",
    "ttft_attainment",
    "tpot_attainment",
    "objective",
    "qoe",
    "ttft_p95_s",
    "max_gap_s",
    "stalled_s",
    "max_stall_s",
    "share_refused",
    "share_first_token",
    "share_answered",
)


WORTH: Mapping[str, str] = {
    "earned_utility": "the time utilities of the plans' first responses",
    "objective": "the weights of the conversations and tasks that met their service level",
}
"""Columns that add up to what the requests' own weights say they earned."""


def run_row(run: Run, **names: Any) -> MeasuredRow:
    """Return one flat row: the columns `names`, those of plans, and those of conversations.

    A run without conversations has no columns of them. A measure of no request is NaN.
    """
    made = metrics.row(run, **names)
    return made | talk_columns(run.conversations) if run.conversations else made


def talk_columns(people: Sequence[ConversationOutcome]) -> MeasuredRow:
    """Return the columns of conversations beside those of plans."""
    row = talks.talk_row(people)
    return {new: row[old] for old, new in TALK_COLUMNS.items()}
