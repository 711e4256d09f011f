"""`timelyllm-arm`: long plans of robot arms, by kind of task (paper 001, Figure 9)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from timely_llm.core.documents import load_document
from timely_llm.experiments import realtime
from timely_llm.experiments.contract import Experiment, Options
from timely_llm.experiments.document import Paper, Row, RunDocument
from timely_llm.experiments.gains import UNBOUNDED, definition, gains
from timely_llm.experiments.stage import Progress
from timely_llm.experiments.sweep import KEYS, Scored, document, sweep
from timely_llm.resources import resource
from timely_llm.traces.model import TraceError
from timely_llm.traces.tasks import TraceTasks

WORKLOAD = "wid3"
"""The workload of Figure 9 (paper 001, Table 3)."""

BASELINE = "fcfs"
TASK_KEYS = (*KEYS[:-1], "task", KEYS[-1])
MEASURES = (
    "utility",
    "utility_unclamped",
    "utility_gain",
    "share_served",
    "response_s",
    "waiting_s",
    f"waiting_s_vs_{BASELINE}",
)

FIGURE_9 = Paper(
    title="Paper 001, Figure 9 and §7.4.1",
    note="The best case, Desk Clean: utility higher by 1.97 and waiting shorter by 84 % than under"
    " vLLM; vLLM-stream is in between, in words only. 1.97 is more than a normal task can earn,"
    " 1: the paper counts utility below 0 too. Llama 3 8B on an RTX 4090 in vLLM, network 8 ms,"
    " once, on traces of its own; its code lets one request join at a step, into a batch of at most"
    " 8, under all policies.",
    rows=(
        {"workload": WORKLOAD, "policy": "timely", "load": 1, "task": "10 Desk cleaning",
         "utility_gain": 1.97, f"waiting_s_vs_{BASELINE}": 0.16},
    ),
)  # fmt: skip


NOTES = (
    "Plans have about 100 tokens in 19 segments, as the paper says of its own; scenes, plans and"
    " the tokens of segments are this package's. All kinds of tasks are normal ones.",
    f"`timely` takes at most 8 at a time, as paper 001's code does; `{UNBOUNDED}` as many as the"
    " engine.",
)


def run(options: Options, progress: Progress) -> RunDocument:
    """Return what robot arms get under each policy, by load and by kind of task.

    Raises:
        TimelyError: something of the options is not possible.
    """
    if options.engine != "simulated":
        return realtime.run(EXPERIMENT, options, (WORKLOAD,), progress)
    return document(
        EXPERIMENT,
        options,
        list(_by_task(sweep(options, (WORKLOAD,), progress), {} if options.trace else titles())),
        keys=TASK_KEYS,
        measures=MEASURES,
        definitions=definition(BASELINE),
        papers=() if options.trace else (FIGURE_9,),
        notes=() if options.trace else NOTES,
    )


def titles() -> dict[str, str]:
    """Return what each kind of task is called, by its number in paper 001, Table 2."""
    file = resource("config/traces/lrtrace_tasks.yaml")
    tasks = load_document(file, TraceTasks, "task set", TraceError).tasks
    return {name: f"{name} {task.title}" for name, task in tasks.items()}


def _by_task(scored: Iterable[Scored], called: dict[str, str]) -> Iterator[Scored]:
    """Yield what came of each kind of task alone; a run's timeline stays with its first kind."""
    scored = list(scored)
    rows = [row for one in scored for row in sorted(one.task_rows, key=_number)]
    compared = iter(gains(rows, TASK_KEYS, BASELINE))
    for one in scored:
        timeline = one.timeline
        for _ in one.task_rows:
            row = next(compared)
            task = str(row["task"])
            yield Scored({**row, "task": called.get(task, task)}, (), timeline)
            timeline = None


def _number(row: Row) -> tuple[int, str]:
    task = str(row["task"])
    return len(task), task


EXPERIMENT = Experiment(
    name="timelyllm-arm",
    question="What do segments do for long plans of robot arms? (paper 001, Figure 9)",
    run=run,
    defaults=Options(
        policies=(BASELINE, "stream", "timely", UNBOUNDED, "deadline"), loads=(1, 2, 4)
    ),
    real_time=Options(policies=(BASELINE, "stream", "timely", "deadline"), loads=(1,), seeds=1),
)
