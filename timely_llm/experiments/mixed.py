"""`mixed`: robots and people at one engine: plans keep their worth while people are served."""

from __future__ import annotations

from dataclasses import replace
from itertools import takewhile

from timely_llm.experiments.contract import SIMULATED, Experiment, Options
from timely_llm.experiments.document import Row, RunDocument
from timely_llm.experiments.lanes import talk_columns
from timely_llm.experiments.metrics import plain
from timely_llm.experiments.metrics import row as plan_row
from timely_llm.experiments.parallel import run_all
from timely_llm.experiments.slice_workload import PROMPT_TOKENS, Lengths, Mix, talks
from timely_llm.experiments.stage import Progress
from timely_llm.experiments.sweep import Case, Scored, cases, run_case
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
    mixed = [
        replace(case, trace=with_talks(case.trace, rate, int(case.names["seed"] or 0)),
                names={**case.names, "rate": rate}, drawn_s=0.0)
        for case in cases(options, (PRESET,))
        for rate in options.rates
    ]  # fmt: skip
    mixed.sort(key=lambda case: _place(case, options))
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
    """Return a workload of robots with people who ask, from its first job to its last one."""
    first_s, last_s = trace.jobs[0].arrival_s, trace.jobs[-1].arrival_s
    mix = Mix(rate, rt_ratio=0.0, lengths=Lengths())
    asked = takewhile(lambda talk: talk.arrival_s <= last_s - first_s, talks(mix, seed))
    people = tuple(replace(talk, arrival_s=talk.arrival_s + first_s) for talk in asked)
    return replace(trace, conversations=people)


def score(case: Case) -> Row:
    """Run a case and return its row.

    Raises:
        TimelyError: it cannot be run.
    """
    run = run_case(case)
    return plain({**plan_row(run, **case.names), **talk_columns(run.talks)})


def _place(case: Case, options: Options) -> tuple[int, int]:
    """Return where a case stands: by load, then by rate; policies and seeds as they are."""
    load, rate = case.names["load"], case.names["rate"]
    return options.loads.index(int(load or 0)), options.rates.index(float(rate or 0.0))


EXPERIMENT = Experiment(
    name="mixed",
    question="Do plans keep their worth, and conversations their service levels, as more people"
    " ask the robots' engine?",
    run=run,
    defaults=Options(policies=POLICIES, loads=(1, 2), rates=RATES),
    understands=SIMULATED | {"rates"},
)
