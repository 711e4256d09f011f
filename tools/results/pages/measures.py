"""Columns that several pages show, and fronts that they search."""

from __future__ import annotations

from timely_llm.experiments.policy_spec import SERVED
from timely_llm.experiments.results.metrics import UNBOUNDED
from timely_llm.experiments.sweep import MEASURES

PLANS = MEASURES
SERVICE = ("attainment", "rt_attainment", "nrt_attainment", "ttft_attainment", "tpot_attainment")
PEOPLE = (*SERVICE, "qoe", "share_refused", "max_gap_s", "stalled_s", "max_stall_s")
BOTH = (
    "utility",
    "urgent_utility",
    "waiting_s",
    "attainment",
    "ttft_p95_s",
    "qoe",
    "share_refused",
    "max_gap_s",
    "stalled_s",
)

PLANS_FRONT = {"utility": 1, "share_finished": 1, "waiting_s": -1}
PEOPLE_FRONT = {"objective": 1, "attainment": 1, "stalled_s": -1}
BOTH_FRONT = {"utility": 1, "attainment": 1, "stalled_s": -1}
"""1 if more is better, -1 if less is."""

TIMELY = ("timely", SERVED, UNBOUNDED)
"""`timely` with the paper's batches, as a server runs it, and with batches of the engine's size."""

DRAWN_PLANS = ("fcfs", "stream", "timely", UNBOUNDED, "deadline")
DRAWN_PEOPLE = ("orca", "slice", "slice:gate", "timely+slice", "deadline", "deadline:gate")
DRAWN_BOTH = ("stream", "timely", "slice", "timely+slice", "deadline", "deadline:gate")
"""Policies in pictures, which more than six would fill."""

SLOW = "rtx4060ti-chatglm2-6b"
"""The device of Zhou et al. 2025: 129 ms for a step of nine rows."""

VERY_SLOW = "thor-gemma4-12b"
"""A robot's computer with a model of 12 billion parameters: 99 ms for a step of one row."""
