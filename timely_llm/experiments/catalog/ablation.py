"""`ablation`: the policy `deadline` without each of its ingredients."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from timely_llm.experiments.contract import Experiment, WorkloadOptions
from timely_llm.experiments.results.document import RunDocument
from timely_llm.experiments.sweep import MEASURES, compared, document, sweep
from timely_llm.experiments.virtual.stage import Progress

WITHOUT: Mapping[str, str] = {
    "deadline:open-loop": "robots' reports do not correct due times",
    "deadline:feasible=off": "requests that can earn no more utility do not yield to others",
    "deadline:urgent_first=off": "waiting requests join in order of arrival",
    "deadline:batch=off": "one request joins a step",
    "deadline:defer=off": "all requests join at once, at any step time",
    "deadline:lead_s=0.5": "plans are suspended until 0.5 s before their robot will be idle",
    "deadline:lead_s=0.5:open-loop": "plans are suspended as above, and robots send no reports",
    "deadline:drops": "late requests are dropped, not deferred",
    "deadline:kappa=0:age_s=inf": "waiting has no price, so requests may starve",
    "deadline:learn=off": "lengths of segments are not learned",
    "deadline:gather_s=0": "an idle engine does not wait for the rest of a burst",
}


@dataclass(frozen=True)
class AblationOptions(WorkloadOptions):
    """Options of `ablation`."""

    policies: tuple[str, ...] = ("deadline", *WITHOUT)
    loads: tuple[int, ...] = (1, 2, 4)


def run(options: AblationOptions, progress: Progress) -> RunDocument:
    """Return the results of the policy without each of its ingredients."""
    scored = compared(sweep(options, ("wid2",), progress), "utility", "deadline")
    used = {one.row["policy"] for one in scored}
    return document(
        EXPERIMENT,
        options,
        scored,
        measures=(*MEASURES, "longest_response_s", "utility_vs_deadline"),
        notes=[f"`{policy}`: {what}." for policy, what in WITHOUT.items() if policy in used],
    )


EXPERIMENT = Experiment(
    name="ablation",
    question="What is each ingredient of the policy deadline worth?",
    run=run,
    defaults=AblationOptions(),
)
