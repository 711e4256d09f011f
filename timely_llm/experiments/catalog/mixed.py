"""`mixed`: plans of robots and conversations of people on one engine, by rate of conversations."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from itertools import takewhile

from timely_llm.experiments.contract import (
    Experiment,
    ExperimentError,
    ReportProgress,
    WorkloadOptions,
)
from timely_llm.experiments.parallel import run_all
from timely_llm.experiments.policy_spec import SERVED
from timely_llm.experiments.results.document import Row, RunDocument
from timely_llm.experiments.results.lanes import talk_columns
from timely_llm.experiments.results.metrics import UNBOUNDED, plain
from timely_llm.experiments.results.metrics import row as plan_row
from timely_llm.experiments.sweep import RunSpec, Scored, cases, simulate_run
from timely_llm.experiments.sweep import document as sweep_document
from timely_llm.experiments.virtual.simulation import LIMITS
from timely_llm.experiments.virtual.slice_workload import (
    PROMPT_TOKENS,
    LengthRange,
    Mix,
    talks,
)
from timely_llm.traces.model import Trace

PRESET = "wid2"
"""The robots' workload: drones at high load (Ling et al. 2024, Table 3)."""

RATES = (0.0, 1.0, 2.0)
POLICIES = (
    "fcfs",
    "stream",
    "stream:gate",
    "prio:rows=4",
    "prio:rows=4:gate",
    "vtc",
    *("timely", SERVED, UNBOUNDED),
    "timely:streams=sentences",
    "slice",
    "slice:gate",
    "timely+slice",
    "timely+slice:gate",
    "deadline",
    "deadline:gate",
)
KEYS = ("workload", "load", "policy", "rate")

MEASURES = (
    "utility",
    "urgent_utility",
    "normal_utility",
    "waiting_s",
    "share_first",
    "share_finished",
)
"""Measures of plans. The measures of conversations follow them."""


def talks_are(lengths: LengthRange) -> str:
    """Say what conversations with answers of some lengths are."""
    shortest, longest = lengths.others
    return (
        "half voice chats (8 tokens/s), half questions (10 tokens/s), 1 s to the first token;"
        f" answers of {shortest} to {longest} tokens, prompts of {PROMPT_TOKENS[0]} to"
        f" {PROMPT_TOKENS[1]} tokens, computed whole"
    )


TALKS = LengthRange()
"""Lengths of answers, unless others are given."""
TALKS_ARE = talks_are(TALKS)


@dataclass(frozen=True)
class MixedOptions(WorkloadOptions):
    """Options of `mixed`.

    Attributes:
        rates: conversations a second.
        lengths: of answers, in the notation of `LengthRange`, one; there are no real-time tasks.
        max_rows: most rows of a step.
    """

    policies: tuple[str, ...] = POLICIES
    loads: tuple[int, ...] = (1, 2)
    seeds: int = 3
    rates: tuple[float, ...] = RATES
    lengths: tuple[str, ...] = (str(TALKS),)
    max_rows: int = LIMITS.max_rows
    explain: bool = field(default=False, init=False)


def run(options: MixedOptions, progress: ReportProgress) -> RunDocument:
    """Return the results of plans and conversations under each policy, by rate."""
    if len(options.lengths) != 1:
        raise ExperimentError(f"mixed has one range of lengths, like {TALKS}")
    lengths = LengthRange.parse(options.lengths[0])
    alone = [_with_rows(case, options.max_rows) for case in cases(options, (PRESET,))]
    mixed = people_beside(alone, options.loads, options.rates, lengths)
    rows = run_all(score, mixed, options.jobs, progress)
    made = sweep_document(
        EXPERIMENT,
        options,
        [Scored(row, ()) for row in rows],
        keys=KEYS,
        measures=MEASURES,
        definitions={"rate": "conversations a second, Poisson"},
    )
    setup = {
        **made.setup,
        "conversations": talks_are(lengths),
        "most rows of a step": options.max_rows,
    }
    return made.model_copy(update={"setup": setup})


def people_beside(
    alone: Iterable[RunSpec],
    loads: Iterable[int],
    rates: Iterable[float],
    lengths: LengthRange = TALKS,
) -> list[RunSpec]:
    """Return each case with conversations at each rate, by load and rate, without timelines."""
    alone = list(alone)
    return [
        _asked_by_people(case, rate, lengths)
        for load in loads
        for rate in rates
        for case in alone
        if case.settings.load == load
    ]


def with_talks(trace: Trace, rate: float, seed: int, lengths: LengthRange = TALKS) -> Trace:
    """Return a workload with new conversations in place of its own, between its first and last job.

    Raises:
        ExperimentError: the workload has no jobs.
    """
    if not trace.jobs:
        raise ExperimentError(f"{trace.name} has no plans to mix conversations with")
    first_s, last_s = trace.jobs[0].arrival_s, trace.jobs[-1].arrival_s
    mix = Mix(rate, rt_ratio=0.0, lengths=lengths)
    asked = takewhile(lambda talk: talk.arrival_s <= last_s - first_s, talks(mix, seed))
    people = tuple(replace(talk, arrival_s=talk.arrival_s + first_s) for talk in asked)
    return replace(trace, conversations=people)


def score(case: RunSpec) -> Row:
    """Run a case and return its row."""
    run = simulate_run(case)
    return plain({**plan_row(run, **case.names), **talk_columns(run.conversations)})


def _with_rows(case: RunSpec, max_rows: int) -> RunSpec:
    """Return a case with some rows."""
    limits = replace(case.settings.limits, max_rows=max_rows)
    return replace(case, settings=replace(case.settings, limits=limits))


def _asked_by_people(case: RunSpec, rate: float, lengths: LengthRange) -> RunSpec:
    """Return a case with conversations and without a timeline."""
    trace = with_talks(case.trace, rate, case.settings.seed, lengths)
    return replace(case, trace=trace, names={**case.names, "rate": rate}, timeline_s=0.0)


EXPERIMENT = Experiment(
    name="mixed",
    question="Do plans keep their worth, and conversations their service levels, as more people"
    " ask the robots' engine?",
    run=run,
    defaults=MixedOptions(),
)
