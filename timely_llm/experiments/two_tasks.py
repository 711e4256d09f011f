"""`timelyllm-trace`: the time trace of a normal and an urgent task of one burst (001, Figure 6)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from timely_llm.core.journal import MemoryJournal
from timely_llm.experiments.case import Case, run_case, title
from timely_llm.experiments.contract import Experiment, ExperimentError, Options
from timely_llm.experiments.document import RunDocument
from timely_llm.experiments.outcome import Run
from timely_llm.experiments.papers import FIGURE_6
from timely_llm.experiments.parallel import run_all
from timely_llm.experiments.sources import SKIP
from timely_llm.experiments.stage import Progress
from timely_llm.experiments.sweep import Scored, cases, document
from timely_llm.experiments.timeline import timeline
from timely_llm.traces.model import Trace
from timely_llm.traces.summary import bursts

MEASURES = (
    "urgent_response_s",
    "normal_response_s",
    "urgent_utility",
    "normal_utility",
    "waiting_s",
    "share_served",
)


@dataclass(frozen=True)
class Trio:
    """A run of which three requests count.

    Attributes:
        case: the run.
        ids: of a normal request, the urgent one that comes next, and one more that is urgent.
    """

    case: Case
    ids: tuple[str, str, str]


def run(options: Options, progress: Progress) -> RunDocument:
    """Return what a normal and an urgent request of one burst get under each policy.

    Raises:
        TimelyError: something of the options is not possible, or there is no such burst.
    """
    trios = [Trio(case, find(case.trace)) for case in cases(options, ("wid2",))]
    return document(
        EXPERIMENT,
        options,
        run_all(score, trios, options.jobs, progress),
        measures=MEASURES,
        papers=(FIGURE_6,),
        notes=[
            "Two requests count, those of Tasks 71 and 72: in each seed's trace the first burst in"
            " which two urgent requests come directly after a normal one.",
            "Timelines show them and Task 73, of the first load and seed; steps without them are"
            " those of others of the burst.",
        ],
    )


def find(trace: Trace) -> tuple[str, str, str]:
    """Return a normal request of a burst and the two urgent ones that come directly after it.

    Raises:
        ExperimentError: there is no such burst after the first jobs, which do not count.
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
    """Run a case and return what the two requests got.

    Raises:
        TimelyError: it cannot be run.
    """
    case, journal = trio.case, MemoryJournal()
    run = run_case(case, journal if case.drawn_s else None)
    both = replace(Scored.of(_only(run, trio.ids[:2]), case.names), task_rows=())
    if not case.drawn_s:
        return both
    all_three, name = _only(run, trio.ids), title(case.names)
    return replace(both, timeline=timeline(name, all_three, journal.events, (0.0, case.drawn_s)))


def _only(run: Run, ids: Iterable[str]) -> Run:
    """Return a run as if there were no other requests."""
    kept = frozenset(ids)
    return replace(run, outcomes=tuple(o for o in run.outcomes if o.work.id in kept))


EXPERIMENT = Experiment(
    name="timelyllm-trace",
    question="When a normal and an urgent request come together, who waits for whom?"
    " (paper 001, Figure 6)",
    run=run,
    defaults=Options(policies=("fcfs", "timely", "deadline")),
)
