"""`ablation`: what each ingredient of the policy `deadline` is worth, by turning it off."""

from __future__ import annotations

from collections.abc import Mapping

from timely_llm.experiments.contract import Experiment, Options
from timely_llm.experiments.document import RunDocument
from timely_llm.experiments.stage import Progress
from timely_llm.experiments.sweep import MEASURES, compared, document, sweep

WITHOUT: Mapping[str, str] = {
    "deadline:open-loop": "due times are not corrected by robots' reports",
    "deadline:feasible=off": "who can no longer earn anything does not give way",
    "deadline:urgent_first=off": "those who wait join in order of arrival",
    "deadline:batch=off": "one joins at a step",
    "deadline:defer=off": "everybody joins at once, however long the step",
    "deadline:lead_s=0.5": "plans rest until 0.5 s before their robot will be idle",
    "deadline:lead_s=0.5:open-loop": "both: plans rest, and nobody reports when robots are done",
    "deadline:drops": "who is late is given up, not deferred",
    "deadline:kappa=0:age_s=inf": "waiting has no price, so anybody may starve",
    "deadline:learn=off": "lengths of segments are not learned",
    "deadline:gather_s=0": "an engine at rest does not wait for the rest of a burst",
}


def run(options: Options, progress: Progress) -> RunDocument:
    """Return what is left of the policy without each of its ingredients.

    Raises:
        TimelyError: something of the options is not possible.
    """
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
    defaults=Options(policies=("deadline", *WITHOUT), loads=(1, 2, 4)),
)
