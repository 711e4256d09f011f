"""`slice-static`: nine answers at once, of three speeds (paper 000, Table II and Figure 6)."""

from __future__ import annotations

import math
from collections.abc import Iterable
from statistics import fmean

from timely_llm.experiments.case import Case, run_case
from timely_llm.experiments.contract import Experiment, Options
from timely_llm.experiments.document import Row, RunDocument
from timely_llm.experiments.metrics import plain
from timely_llm.experiments.outcome import Talk
from timely_llm.experiments.papers_slice import TABLE_II
from timely_llm.experiments.parallel import run_all
from timely_llm.experiments.policy_spec import chosen
from timely_llm.experiments.slice_sweep import defaults, document, settings
from timely_llm.experiments.stage import Progress
from timely_llm.experiments.talks import gaps_until, talk_row
from timely_llm.traces.model import Conversation, Trace

TYPES = {"A": (3, 0.1), "B": (4, 0.12), "C": (2, 0.25)}
"""Of each type: how many tasks there are, and seconds a token (paper 000, Table II)."""

TOKENS = 400
"""Of each answer; the paper does not say how long they are."""

ALL = "all"
POLICIES = ("orca", "fastserve", "slice", "slice:even=on", "timely+slice", "deadline")
MEASURES = (
    "tpot_slo_ms",
    "tpot_ms",
    "together_tpot_ms",
    "decoding_rate",
    "attainment",
    "max_gap_s",
    "share_served",
)

_DEFINITIONS = {
    "type": "of tasks: A, B or C, as in paper 000's Table II; all: the nine together",
    "tpot_slo_ms": "milliseconds between tokens that were asked for",
    "tpot_ms": "milliseconds between tokens, mean over the whole answers",
    "together_tpot_ms": "the same, as long as no answer is complete: all nine are there",
    "decoding_rate": "tokens a second: 1000 over tpot_ms",
}


def run(options: Options, progress: Progress) -> RunDocument:
    """Return how fast tokens of each type of task come under each policy.

    Raises:
        TimelyError: something of the options is not possible.
    """
    trace, like = nine(), settings(options)
    cases = [Case(trace, spec, like, {"policy": spec.text}) for spec in chosen(options)]
    scored = run_all(score, cases, options.jobs, progress)
    return document(
        EXPERIMENT,
        options,
        [row for rows in scored for row in rows],
        keys=("policy", "type"),
        measures=MEASURES,
        definitions=_DEFINITIONS,
        papers=(TABLE_II,),
        facts={
            "workload": f"nine tasks at once, {TOKENS} tokens each",
            "seeds": "nothing is random",
        },
    )


def nine() -> Trace:
    """Return the tasks of Table II, all at once."""
    talks = [
        Conversation(
            id=f"{kind}-{number}",
            arrival_s=0.0,
            agent=f"{kind}-{number}",
            prompt_tokens=1,
            output_tokens=TOKENS,
            tpot_s=tpot_s,
            max_tokens=TOKENS,
        )
        for kind, (count, tpot_s) in TYPES.items()
        for number in range(count)
    ]
    return Trace("nine", "paper 000, Table II", (), tuple(talks))


def score(case: Case) -> list[Row]:
    """Run a case and return a row for each type of task, and one for all.

    Raises:
        TimelyError: it cannot be run.
    """
    talks = run_case(case).talks
    complete_s = min((talk.times_s[-1] for talk in talks if talk.finished), default=math.inf)
    rows = []
    for kind, (_, tpot_s) in {**TYPES, ALL: (0, math.nan)}.items():
        mine = [talk for talk in talks if kind in (ALL, talk.conversation.id[0])]
        speed = {"tpot_slo_ms": 1e3 * tpot_s, **_speed(mine, complete_s)} if kind != ALL else {}
        made = talk_row(mine, **case.names, type=kind, rate=None, rt_ratio=0.0, seed=0)
        rows.append(plain({**made, **speed}))
    return rows


def _speed(talks: Iterable[Talk], complete_s: float) -> dict[str, float]:
    """Return how fast tokens came, at all and until a moment."""
    talks = list(talks)
    tpot_s = fmean(talk.tpot_s for talk in talks)
    together = [gap for talk in talks for gap in gaps_until(talk, complete_s)]
    return {
        "tpot_ms": 1e3 * tpot_s,
        "together_tpot_ms": 1e3 * fmean(together) if together else math.nan,
        "decoding_rate": 1.0 / tpot_s,
    }


EXPERIMENT = Experiment(
    name="slice-static",
    question="Does each of nine tasks at once get the speed that it needs?"
    " (paper 000, Table II and Figure 6)",
    run=run,
    defaults=defaults(policies=POLICIES, seeds=1),
    understands=frozenset(("policies", "profile", "network_s", "jobs", "charged")),
)
