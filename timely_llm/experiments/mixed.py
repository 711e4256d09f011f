"""`mixed`: robots and people at one engine: plans keep their worth while people are served."""

from __future__ import annotations

from dataclasses import replace
from itertools import takewhile

from timely_llm.experiments.case import Case, run_case
from timely_llm.experiments.contract import SIMULATED, Experiment, ExperimentError, Options
from timely_llm.experiments.document import Row, RunDocument
from timely_llm.experiments.lanes import talk_columns
from timely_llm.experiments.metrics import plain
from timely_llm.experiments.metrics import row as plan_row
from timely_llm.experiments.parallel import run_all
from timely_llm.experiments.slice_workload import PROMPT_TOKENS, Mix, talks
from timely_llm.experiments.stage import Progress
from timely_llm.experiments.sweep import Scored, cases
from timely_llm.experiments.sweep import document as sweep_document
from timely_llm.traces.model import Trace

PRESET = "wid2"
"""The robots' workload: drones at high load (paper 001, Table 3)."""

RATES = (0.0, 0.3, 1.0, 2.0)
POLICIES = ("fcfs", "stream", "timely", "slice", "timely+slice", "deadline")
KEYS = ("workload", "load", "policy", "rate")

MEASURES = ("utility", "urgent_utility", "normal_utility", "waiting_s", "share_served")
"""Of plans; those of conversations follow."""


def run(options: Options, progress: Progress) -> RunDocument:
    """Return what robots and people get under each policy, as more people ask.

    Raises:
        TimelyError: something of the options is not possible.
    """
    alone = cases(options, (PRESET,))
    mixed = [
        _asked_by_people(case, rate)
        for load in options.loads
        for rate in options.rates
        for case in alone
        if case.settings.load == load
    ]
    rows = run_all(score, mixed, options.jobs, progress)
    made = sweep_document(
        EXPERIMENT,
        options,
        [Scored(row, ()) for row in rows],
        keys=KEYS,
        measures=MEASURES,
        definitions={"rate": "conversations a second, Poisson"},
    )
    fewest, most = PROMPT_TOKENS
    talks_are = (
        "half voice chats (8 tokens/s), half questions (10 tokens/s), 1 s to the first token;"
        f" answers of 40 to 160 tokens, prompts of {fewest} to {most}, all of them computed"
    )
    return made.model_copy(update={"setup": {**made.setup, "conversations": talks_are}})


def with_talks(trace: Trace, rate: float, seed: int) -> Trace:
    """Return a workload of robots with people who ask, from its first job to its last one.

    Conversations that it has already are left out.

    Raises:
        ExperimentError: it has no jobs.
    """
    if not trace.jobs:
        raise ExperimentError(f"{trace.name} has no plans: there are no robots to be mixed with")
    first_s, last_s = trace.jobs[0].arrival_s, trace.jobs[-1].arrival_s
    asked = takewhile(
        lambda talk: talk.arrival_s <= last_s - first_s, talks(Mix(rate, rt_ratio=0.0), seed)
    )
    people = tuple(replace(talk, arrival_s=talk.arrival_s + first_s) for talk in asked)
    return replace(trace, conversations=people)


def score(case: Case) -> Row:
    """Run a case and return its row.

    Raises:
        TimelyError: it cannot be run.
    """
    run = run_case(case)
    return plain({**plan_row(run, **case.names), **talk_columns(run.talks)})


def _asked_by_people(case: Case, rate: float) -> Case:
    """Return the same case with conversations; nothing of it is drawn."""
    trace = with_talks(case.trace, rate, case.settings.seed)
    return replace(case, trace=trace, names={**case.names, "rate": rate}, drawn_s=0.0)


EXPERIMENT = Experiment(
    name="mixed",
    question="Do plans keep their worth, and conversations their service levels, as more people"
    " ask the robots' engine?",
    run=run,
    defaults=Options(policies=POLICIES, loads=(1, 2), rates=RATES),
    understands=SIMULATED | {"rates"},
)
