"""`pice-schedule`: a static and a dynamic scheduler of sketches (Zhan et al. 2025, Figure 6)."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from statistics import fmean

from timely_llm.experiments.contract import Experiment, ReportProgress
from timely_llm.experiments.parallel import run_all
from timely_llm.experiments.results.document import RunDocument
from timely_llm.experiments.results.metrics import MeasuredRow, plain
from timely_llm.experiments.results.reported_sketches import ZHAN_FIGURE_6
from timely_llm.experiments.virtual.sketches.bench import ShownAnswer
from timely_llm.experiments.virtual.sketches.score import (
    DEFINITIONS,
    MEASURES,
    SketchCase,
    SketchOptions,
    measures,
    rouge_of,
)
from timely_llm.experiments.virtual.sketches.setup import NOTES, POLICIES, PROFILE, setup

KEYS = ("category", "policy")
ALL = "all"
STATIC = "pice-static"


@dataclass(frozen=True)
class ScheduleOptions(SketchOptions):
    """Options of `pice-schedule`."""

    policies: tuple[str, ...] = ("cloud-only", "routing", STATIC, "pice", "sketches")


def run(options: ScheduleOptions, progress: ReportProgress) -> RunDocument:
    """Return what each scheduler gets, over all questions and by category.

    Raises:
        TimelyError: a method is unknown.
    """
    cases = [
        SketchCase(policy, seed, {"policy": policy}, minutes=options.minutes)
        for policy in options.policies
        for seed in options.each_seed
    ]
    parts = run_all(score, cases, options.jobs, progress)
    return EXPERIMENT.document(
        PROFILE,
        setup(options),
        keys=KEYS,
        measures=(*MEASURES, "net_win_rate"),
        definitions={
            "category": "of the questions, or `all`; throughput is of all only",
            "policy": POLICIES,
            **DEFINITIONS,
            "net_win_rate": f"share of the questions with a Rouge-1 above that under `{STATIC}`,"
            " less the share with one below",
        },
        rows=tuple(_with_wins([row for rows in parts for row in rows])),
        papers=(ZHAN_FIGURE_6,),
        notes=NOTES,
    )


def score(case: SketchCase) -> list[MeasuredRow]:
    """Run a case; return its row and one for each category, with the likeness of each answer."""
    answers = case.answers()
    by_category: dict[str, list[ShownAnswer]] = defaultdict(list)
    for one in answers:
        by_category[one.question.category].append(one)
    rows: list[MeasuredRow] = [{**measures(answers), "category": ALL}]
    for category, group in sorted(by_category.items()):
        rows.append(
            {
                "category": category,
                "latency_s": fmean(one.end_s - one.question.at_s for one in group),
                "rouge_1": fmean(map(rouge_of, group)),
                "sketched": fmean(one.sketch_tokens > 0 for one in group),
                "count": len(group),
            }
        )
    likeness = {one.question.key: rouge_of(one) for one in answers}
    members = {ALL: answers, **by_category}
    return [
        plain({**case.names, "seed": case.seed, **row})
        | {"of": {one.question.key: likeness[one.question.key] for one in members[row["category"]]}}
        for row in rows
    ]


def _with_wins(rows: list[MeasuredRow]) -> list[MeasuredRow]:
    """Replace the likeness of each answer by the net win rate over the static scheduler."""
    static = {(row["category"], row["seed"]): row["of"] for row in rows if row["policy"] == STATIC}
    made = []
    for row in rows:
        mine = row.pop("of")
        theirs = static.get((row["category"], row["seed"]))
        if theirs:
            wins = [(mine[key] > theirs[key]) - (mine[key] < theirs[key]) for key in mine]
            row["net_win_rate"] = fmean(wins)
        made.append(row)
    return made


EXPERIMENT = Experiment(
    name="pice-schedule",
    question="What does a scheduler of sketches gain that follows the load?"
    " (Zhan et al. 2025, Figure 6)",
    run=run,
    defaults=ScheduleOptions(),
)
