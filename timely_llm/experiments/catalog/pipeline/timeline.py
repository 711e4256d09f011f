"""`pipeline-timeline`: what stages do in some seconds of a run (Ahn et al. 2025, Figure 2)."""

from __future__ import annotations

from dataclasses import dataclass, replace

from timely_llm.experiments.catalog.pipeline.offline import (
    ARMS,
    OfflineOptions,
    answered,
    cases_of,
)
from timely_llm.experiments.contract import Experiment, ReportProgress
from timely_llm.experiments.results.document import RunDocument
from timely_llm.experiments.virtual.pipeline import EqualRequests, PipelineCase


@dataclass(frozen=True)
class TimelineOptions(OfflineOptions):
    """Options of `pipeline-timeline`.

    Attributes:
        seconds: length of the timelines; they begin at half of `bound_s`.
    """

    policies: tuple[str, ...] = (ARMS[0], *ARMS[2:])
    workloads: tuple[str, ...] = ("64/1024/1024",)
    seconds: float = 3.0


def run(options: TimelineOptions, progress: ReportProgress) -> RunDocument:
    """Return the rows of `pipeline-offline`, and a timeline of the stages for each.

    Raises:
        TimelyError: an option is not possible.
    """
    cases = [_drawn(case, options.seconds) for case in cases_of(options)]
    return answered(EXPERIMENT, options, cases, progress)


def _drawn(case: PipelineCase, seconds: float) -> PipelineCase:
    """Return a case with a timeline."""
    begin_s = EqualRequests.parse(case.trace.name).bound_s(case.profile) / 2
    return replace(case, window=(begin_s, begin_s + seconds))


EXPERIMENT = Experiment(
    name="pipeline-timeline",
    question="When does each stage compute, transfer and wait? (Ahn et al. 2025, Figure 2)",
    run=run,
    defaults=TimelineOptions(),
)
