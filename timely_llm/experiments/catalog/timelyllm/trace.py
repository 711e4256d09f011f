"""`timelyllm-trace`: a normal and an urgent task of one burst (Ling et al. 2024, Figure 6)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from timely_llm.core.events.log import MemoryEventLog
from timely_llm.experiments.contract import (
    Experiment,
    ExperimentError,
    PaperOptions,
    ReportProgress,
)
from timely_llm.experiments.parallel import run_all
from timely_llm.experiments.policy_spec import PAPER_BOUND, SERVED
from timely_llm.experiments.results.document import RunDocument
from timely_llm.experiments.results.metrics import UNBOUNDED
from timely_llm.experiments.results.reported import FIGURE_6
from timely_llm.experiments.results.timeline import timeline
from timely_llm.experiments.sources import SKIP
from timely_llm.experiments.sweep import RunSpec, Scored, cases, document, simulate_run, title
from timely_llm.experiments.virtual.outcome import Run
from timely_llm.traces.model import Trace
from timely_llm.traces.summary import bursts

MEASURES = (
    "urgent_response_s",
    "normal_response_s",
    "urgent_utility",
    "normal_utility",
    "waiting_s",
    "share_first",
    "share_finished",
)


@dataclass(frozen=True)
class Trio:
    """A run, and three requests of it.

    Attributes:
        case: the run.
        ids: ids of a normal request and of the two urgent requests that arrive after it.
    """

    case: RunSpec
    ids: tuple[str, str, str]


@dataclass(frozen=True)
class TraceOptions(PaperOptions):
    """Options of `timelyllm-trace`."""

    policies: tuple[str, ...] = ("fcfs", "timely", SERVED, UNBOUNDED, PAPER_BOUND, "deadline")


def run(options: TraceOptions, progress: ReportProgress) -> RunDocument:
    """Return the results of a normal and an urgent request of one burst under each policy."""
    trios = [Trio(case, find(case.trace)) for case in cases(options, ("wid2",))]
    return document(
        EXPERIMENT,
        options,
        run_all(score, trios, options.jobs, progress),
        measures=MEASURES,
        papers=(FIGURE_6,),
        notes=[
            "Rows are about two requests, the paper's Tasks 71 and 72: in each seed's trace, a"
            " normal request and the urgent one after it, from the first burst in which two urgent"
            " requests arrive directly after a normal one.",
            "Timelines show these two and Task 73, with the first load and seed. Steps without them"
            " are steps of other requests of the burst.",
        ],
    )


def find(trace: Trace) -> tuple[str, str, str]:
    """Return the ids of a normal request of a burst and of the two urgent ones directly after it.

    Raises:
        ExperimentError: the trace has no such burst after its first jobs, which do not count.
    """
    for burst in bursts(trace.jobs[SKIP:]):
        for three in zip(burst, burst[1:], burst[2:], strict=False):
            if [job.urgent for job in three] == [False, True, True]:
                normal, urgent, other = three
                return normal.id, urgent.id, other.id
    raise ExperimentError(
        f"the trace {trace.name} has no burst in which two urgent requests come directly after a"
        " normal one"
    )


def score(trio: Trio) -> Scored:
    """Run a case and return the results of the first two requests."""
    case, event_log = trio.case, MemoryEventLog()
    run = simulate_run(case, event_log if case.timeline_s else None)
    both = replace(Scored.of(_only(run, trio.ids[:2]), case.names), task_rows=())
    if not case.timeline_s:
        return both
    all_three, name = _only(run, trio.ids), title(case.names)
    return replace(
        both, timeline=timeline(name, all_three, event_log.events, (0.0, case.timeline_s))
    )


def _only(run: Run, ids: Iterable[str]) -> Run:
    """Return a run without the outcomes of other requests."""
    kept = frozenset(ids)
    return replace(run, outcomes=tuple(o for o in run.outcomes if o.work.id in kept))


EXPERIMENT = Experiment(
    name="timelyllm-trace",
    question="When a normal and an urgent request arrive together, which one waits?"
    " (Ling et al. 2024, Figure 6)",
    run=run,
    defaults=TraceOptions(),
)
