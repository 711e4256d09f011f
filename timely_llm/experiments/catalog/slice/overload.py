"""`slice-overload`: two tasks a second for 20 minutes, more than the testbed of SLICE can serve."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from timely_llm.experiments.contract import Experiment, ReportProgress
from timely_llm.experiments.parallel import run_all
from timely_llm.experiments.results.document import Row, RunDocument
from timely_llm.experiments.results.metrics import plain
from timely_llm.experiments.results.talks import is_real_time, share, talk_row
from timely_llm.experiments.sweep import RunSpec, simulate_run
from timely_llm.experiments.virtual.outcome import ConversationOutcome
from timely_llm.experiments.virtual.slice_sweep import (
    KEY_DEFINITIONS,
    POLICIES,
    TaskOptions,
    cases,
    document,
)

KEYS = (*(key for key in KEY_DEFINITIONS if key != "rate"), "policy", "rate")
MEASURES = (
    "attainment",
    "objective",
    "rt_attainment",
    "nrt_attainment",
    "ttft_attainment",
    "tpot_attainment",
    "qoe",
    "max_ttft_s",
    "rt_late_share",
    "max_late_s",
    "stalled_s",
    "max_stall_s",
    "max_gap_s",
    "share_refused",
    "share_first",
    "share_finished",
)
DEFINITIONS = {
    "max_ttft_s": "longest time to the first token of a conversation that had one, seconds",
    "rt_late_share": "share of the real-time tasks with a whole answer after the deadline",
    "max_late_s": "longest time from the deadline of a real-time task to its whole answer, seconds",
}


@dataclass(frozen=True)
class OverloadOptions(TaskOptions):
    """Options of `slice-overload`."""

    policies: tuple[str, ...] = POLICIES
    seeds: int = 2
    minutes: float | None = 20.0
    rates: tuple[float, ...] = (2.0,)


def run(options: OverloadOptions, progress: ReportProgress) -> RunDocument:
    """Return what is met, and how late the rest is, in a long overload."""
    rows = run_all(score, cases(options), options.jobs, progress)
    return document(
        EXPERIMENT, options, rows, keys=KEYS, measures=MEASURES, definitions=DEFINITIONS
    )


def score(case: RunSpec) -> Row:
    """Run a case and return its row."""
    talks = simulate_run(case).conversations
    return plain({**talk_row(talks, **case.names), **lateness(talks)})


def lateness(talks: Sequence[ConversationOutcome]) -> dict[str, float]:
    """Return the columns of `DEFINITIONS`; one without a request to count is NaN."""
    machines = [talk for talk in talks if is_real_time(talk)]
    people = [talk for talk in talks if not is_real_time(talk)]
    late_s = [talk.completion_s - talk.conversation.deadline_s for talk in machines]
    return {
        "max_ttft_s": max((talk.ttft_s for talk in people if talk.times_s), default=math.nan),
        "rt_late_share": share(
            machines, lambda talk: talk.conversation.deadline_s < talk.completion_s < math.inf
        ),
        "max_late_s": max((one for one in late_s if one < math.inf), default=math.nan),
    }


EXPERIMENT = Experiment(
    name="slice-overload",
    question="In a long overload, how late is what is not served in time?",
    run=run,
    defaults=OverloadOptions(),
)
