"""`slice-weight`: how much depends on the worth of a real-time task.

Zhou et al. 2025 (§I) gives real-time tasks a utility that is "typically 10 to 100 times higher". It
names no value for its experiments. The other experiments of this package take 100.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from timely_llm.experiments.contract import Experiment, ExperimentError, ReportProgress
from timely_llm.experiments.parallel import run_all
from timely_llm.experiments.results.document import RunDocument
from timely_llm.experiments.sweep import RunSpec
from timely_llm.experiments.virtual.slice_sweep import (
    KEY_DEFINITIONS,
    MEASURES,
    TaskOptions,
    cases,
    document,
    score,
)

WEIGHTS = (1.0, 10.0, 30.0, 100.0)
"""Without a preference, and the range that the paper calls typical."""

KEYS = (*KEY_DEFINITIONS, "policy", "weight")
DEFINITIONS = {"weight": "worth of a real-time task over that of a conversation"}


@dataclass(frozen=True)
class WeightOptions(TaskOptions):
    """Options of `slice-weight`.

    Attributes:
        weights: worth of a real-time task over that of a conversation.
    """

    policies: tuple[str, ...] = (
        "prio:rows=4",
        "prio:rows=4:gate",
        "slice",
        "slice:gate",
        "timely+slice",
        "timely+slice:gate",
        "deadline",
        "deadline:gate",
    )
    rates: tuple[float, ...] = (2.0,)
    weights: tuple[float, ...] = WEIGHTS


def run(options: WeightOptions, progress: ReportProgress) -> RunDocument:
    """Return what each policy reaches with each worth of a real-time task."""
    if not options.weights:
        raise ExperimentError("no weights are named: they are like 10,100")
    weighed = [worth(case, weight) for case in cases(options) for weight in options.weights]
    return document(
        EXPERIMENT,
        options,
        run_all(score, weighed, options.jobs, progress),
        keys=KEYS,
        measures=MEASURES,
        definitions=DEFINITIONS,
        facts={"worth of a real-time task": "as in the column weight"},
    )


def worth(case: RunSpec, weight: float) -> RunSpec:
    """Return a case in which each real-time task is worth `weight`."""
    talks = tuple(
        replace(talk, weight=weight) if talk.deadline_s < math.inf else talk
        for talk in case.trace.conversations
    )
    trace = replace(case.trace, conversations=talks)
    return replace(case, trace=trace, names={**case.names, "weight": weight})


EXPERIMENT = Experiment(
    name="slice-weight",
    question="How much depends on the worth of a real-time task? (Zhou et al. 2025, §I)",
    run=run,
    defaults=WeightOptions(),
)
