"""`timelyllm-arm`: long plans of robot arms, by kind of task (Ling et al. 2024, Figure 9)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from timely_llm.core.documents.read import load_document
from timely_llm.experiments.contract import (
    Experiment,
    PaperOptions,
    RealTimeOptions,
    ReportProgress,
)
from timely_llm.experiments.policy_spec import PAPER_BOUND, SERVED
from timely_llm.experiments.realtime import run as realtime
from timely_llm.experiments.results.document import Paper, Row, RunDocument
from timely_llm.experiments.results.metrics import (
    UNBOUNDED,
    definition,
    gains,
    relative_definition,
    relative_gains,
)
from timely_llm.experiments.sweep import (
    GAIN_BASELINE,
    GAIN_MEASURES,
    GAIN_NOTE,
    KEYS,
    Scored,
    document,
    sweep,
)
from timely_llm.experiments.virtual.durations import NOISY
from timely_llm.resources import resource
from timely_llm.traces.model import TraceError
from timely_llm.traces.tasks import TraceTasks

WORKLOAD = "wid3"
"""The workload of Figure 9 (Ling et al. 2024, Table 3)."""

TASK_KEYS = (*KEYS[:-1], "task", KEYS[-1])

BEST = "10 Desk cleaning"
"""The best case of Figure 9."""

ALL = "all"
"""The row of all kinds of tasks."""

RATIO = "utility_relative_gain"
"""The gain in the form of the paper's script: (t - v) / |v|."""

FIGURE_9 = Paper(
    title="Ling et al. 2024, Figure 9 and §7.4.1",
    note="The best case, Desk Clean: utility is higher by 1.97 and waiting shorter by 84 % than"
    " under vLLM. The abstract calls the same number 1.97 times; as a difference, and as a ratio"
    " (t - v) / |v|, it puts vLLM near -1. The paper states no number for vLLM-stream, which it"
    " places in between. A normal task earns 1 at most, so the paper's 1.97 counts utility below"
    " 0. Llama 3 8B on an RTX 4090 in vLLM, network 8 ms, one run, on traces of its own. Its code"
    " admits one request a step into a batch of at most 8, under all policies.",
    rows=(
        {"workload": WORKLOAD, "policy": "timely", "load": 1, "task": BEST,
         "utility_gain": 1.97, RATIO: 1.97, f"waiting_s_vs_{GAIN_BASELINE}": 0.16},
    ),
)  # fmt: skip

PUBLISHED = Paper(
    title="Ling et al. 2026, abstract",
    note="The version published at MobiSys 2026 has 1.52 times where the preprint has 1.97, with"
    " further robots.",
    rows=({"workload": WORKLOAD, "policy": "timely", "load": 1, "task": BEST, RATIO: 1.52},),
)


DEFINITIONS = {
    "task": f"kind of task; {ALL}: mean over them",
    RATIO: relative_definition("utility_unclamped", GAIN_BASELINE),
}

NOTES = (
    "Plans have about 100 tokens in 19 segments, as the paper's plans. Scenes, plans and the tokens"
    " of segments are this package's. All kinds of tasks are normal.",
    GAIN_NOTE,
)


@dataclass(frozen=True)
class ArmOptions(PaperOptions, RealTimeOptions):
    """Options of `timelyllm-arm`."""

    policies: tuple[str, ...] = (
        *(GAIN_BASELINE, "stream", "timely", SERVED, UNBOUNDED, PAPER_BOUND, "deadline"),
    )
    seeds: int = 2
    loads: tuple[int, ...] = (1, 2, 4)


def run(options: ArmOptions, progress: ReportProgress) -> RunDocument:
    """Return the results of robot arms under each policy, by load and by kind of task."""
    if options.engine != "simulated":
        return realtime.run(EXPERIMENT, options, (WORKLOAD,), progress)
    return document(
        EXPERIMENT,
        options,
        list(_by_task(sweep(options, (WORKLOAD,), progress), {} if options.trace else titles())),
        keys=TASK_KEYS,
        measures=(*GAIN_MEASURES[:3], RATIO, *GAIN_MEASURES[3:]),
        definitions={**definition(GAIN_BASELINE), **DEFINITIONS},
        papers=() if options.trace else (FIGURE_9, PUBLISHED),
        notes=() if options.trace else NOTES,
    )


def titles() -> dict[str, str]:
    """Return the names of the kinds of tasks, by their numbers in Ling et al. 2024, Table 2."""
    file = resource("config/traces/lrtrace_tasks.yaml")
    tasks = load_document(file, TraceTasks, "task set", TraceError).tasks
    return {name: f"{name} {task.title}" for name, task in tasks.items()}


def _by_task(scored: Iterable[Scored], names: dict[str, str]) -> Iterator[Scored]:
    """Yield the results of each kind of task and of all; a run's timeline goes to its first."""
    scored = list(scored)
    rows = [row for one in scored for row in (*sorted(one.task_rows, key=_number), _total(one))]
    rows = relative_gains(rows, TASK_KEYS, "utility_unclamped", GAIN_BASELINE, RATIO)
    compared = iter(gains(rows, TASK_KEYS, GAIN_BASELINE))
    for one in scored:
        timeline = one.timeline
        for _ in (*one.task_rows, one):
            row = next(compared)
            task = str(row["task"])
            yield Scored({**row, "task": names.get(task, task)}, (), timeline)
            timeline = None


def _total(one: Scored) -> Row:
    """Return the row of all kinds of tasks, with the columns that a kind has."""
    columns = one.task_rows[0] if one.task_rows else {}
    return {name: one.row.get(name) for name in columns} | {"task": ALL}


def _number(row: Row) -> tuple[int, str]:
    task = str(row["task"])
    return len(task), task


EXPERIMENT = Experiment(
    name="timelyllm-arm",
    question="What do segments gain for long plans of robot arms? (Ling et al. 2024, Figure 9)",
    run=run,
    defaults=ArmOptions(),
    real_time=ArmOptions(
        policies=("fcfs", "stream", "timely", "deadline"), loads=(1,), seeds=1, durations=NOISY
    ),
)
