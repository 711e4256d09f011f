"""`slice-static`: nine answers of three speeds at once (Zhou et al. 2025, Table II, Figure 6)."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from statistics import fmean

from timely_llm.experiments.contract import Experiment, ReportProgress
from timely_llm.experiments.parallel import run_all
from timely_llm.experiments.policy_spec import chosen
from timely_llm.experiments.results.document import Row, RunDocument
from timely_llm.experiments.results.metrics import plain
from timely_llm.experiments.results.reported import TABLE_II
from timely_llm.experiments.results.talks import gaps_until, talk_row
from timely_llm.experiments.sweep import RunSpec, simulate_run
from timely_llm.experiments.virtual.outcome import ConversationOutcome
from timely_llm.experiments.virtual.slice_sweep import TalkOptions, document, settings
from timely_llm.traces.model import Conversation, Trace

TYPES = {"A": (3, 0.1), "B": (4, 0.12), "C": (2, 0.25)}
"""Number of tasks and seconds a token, by type (Zhou et al. 2025, Table II)."""

TOKENS = 400
"""Tokens of each answer. The paper does not state its lengths."""

ALL = "all"
POLICIES = (
    "orca",
    "fastserve",
    "fastserve:rows=8",
    "vtc",
    "slice",
    "slice:even=on",
    "timely:streams=sentences",
    "timely+slice",
    "deadline",
    "deadline:gate",
)
MEASURES = (
    "tpot_slo_ms",
    "tpot_ms",
    "together_tpot_ms",
    "decoding_rate",
    "attainment",
    "objective",
    "qoe",
    "max_gap_s",
    "share_first",
    "share_finished",
)

_DEFINITIONS = {
    "type": "type of the task: A, B or C, as in Zhou et al. 2025's Table II; all: all nine tasks",
    "tpot_slo_ms": "requested milliseconds between tokens",
    "tpot_ms": "milliseconds between tokens, mean over the whole answers",
    "together_tpot_ms": "the same, until the first answer is complete: all nine tasks are active",
    "decoding_rate": "tokens a second: 1000 over tpot_ms",
}


@dataclass(frozen=True)
class StaticOptions(TalkOptions):
    """Options of `slice-static`."""

    policies: tuple[str, ...] = POLICIES


def run(options: StaticOptions, progress: ReportProgress) -> RunDocument:
    """Return the token rates of each type of task under each policy."""
    trace, like = nine(), settings(options)
    cases = [RunSpec(trace, spec, like, {"policy": spec.text}) for spec in chosen(options.policies)]
    scored = run_all(score, cases, options.jobs, progress)
    return document(
        EXPERIMENT,
        options,
        [row for rows in scored for row in rows],
        keys=("policy", "type"),
        measures=MEASURES,
        definitions=_DEFINITIONS,
        papers=(TABLE_II,),
        facts={"workload": f"nine tasks at once, {TOKENS} tokens each"},
    )


def nine() -> Trace:
    """Return the nine tasks of Table II, which arrive at once."""
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
    return Trace("nine", "Zhou et al. 2025, Table II", (), tuple(talks))


def score(case: RunSpec) -> list[Row]:
    """Run a case and return a row for each type of task, and a row for all tasks."""
    talks = simulate_run(case).conversations
    complete_s = min((talk.times_s[-1] for talk in talks if talk.finished), default=math.inf)
    rows = []
    for kind, (_, tpot_s) in {**TYPES, ALL: (0, math.nan)}.items():
        mine = [talk for talk in talks if kind in (ALL, talk.conversation.id[0])]
        speed = {"tpot_slo_ms": 1e3 * tpot_s, **_speed(mine, complete_s)} if kind != ALL else {}
        made = talk_row(mine, **case.names, type=kind, rate=None, rt_ratio=0.0, seed=0)
        rows.append(plain({**made, **speed}))
    return rows


def _speed(talks: Iterable[ConversationOutcome], complete_s: float) -> dict[str, float]:
    """Return token rates over whole answers, and until `complete_s`."""
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
    " (Zhou et al. 2025, Table II and Figure 6)",
    run=run,
    defaults=StaticOptions(),
    reasons={"trace": "since its nine tasks are those of Zhou et al. 2025: slice-rate has one"},
)
