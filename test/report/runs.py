"""Runs to report: one that was simulated, and what bad files hold."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from functools import cache

from test.experiments.workloads import job, trace
from timely_llm.core.events.log import MemoryEventLog
from timely_llm.core.time_utility import URGENT
from timely_llm.experiments.results.document import Paper, Row, RunDocument
from timely_llm.experiments.results.lanes import TALK_DEFINITIONS, TALK_MEASURES, run_row
from timely_llm.experiments.results.metrics import DEFINITIONS, plain, row, task_rows
from timely_llm.experiments.results.timeline import timeline
from timely_llm.experiments.virtual.simulation import SimulationSettings, simulate
from timely_llm.policies.registry import make_policy
from timely_llm.report.load import LoadedRun
from timely_llm.traces.model import Conversation

WRITTEN = datetime(2026, 11, 22, 12, 30, tzinfo=UTC)

HOSTILE = (
    "<script>window.bad = 1</script>",
    "\"'><img src=x onerror=window.bad=1>",
    "</script><script>window.bad = 1</script>",
    "<!--<script>",
    "$$\\frac{1}{2}$$ \\(x\\)",
    "{{ 7 * 7 }} {% raw %} &lt;b&gt;",
    "@name $index @{left}{safe}",
    "a\u202eb\x00c\nd",
    "x" * 3000,
)

TRACE = trace(
    *(
        job(f"u{i}", i / 4, task="dodge", utility=URGENT)
        if i % 2
        else job(f"n{i}", i / 4, task="find")
        for i in range(12)
    )
)


@cache
def simulated() -> RunDocument:
    """Return a run of two policies, two loads and two seeds, with rows by task and a timeline."""
    rows: list[Row] = []
    by_task: list[Row] = []
    timelines = []
    for policy in ("stream", "timely"):
        for load in (1, 4):
            for seed in range(2):
                event_log = MemoryEventLog()
                settings = SimulationSettings(load=load, seed=seed, skip=0, true_noise=0.1)
                run = simulate(TRACE, make_policy(policy), settings, event_log=event_log)
                names = {"policy": policy, "load": load, "seed": seed}
                rows.append(plain(row(run, **names)))
                by_task += map(plain, task_rows(run, **names))
                if not seed and load == 4:
                    timelines.append(timeline(policy, run, event_log.events))
    return RunDocument(
        experiment="small",
        question="Which requests are served in time?",
        command="timely-llm experiment small --json small.json",
        profile="rtx4090-llama3-8b",
        setup={"jobs": 12, "cached": True},
        measures=("utility", "response_s", "waiting_s"),
        definitions=dict(DEFINITIONS),
        rows=tuple(rows),
        task_rows=tuple(by_task),
        papers=(Paper(title="A paper", rows=({"policy": "timely", "load": 1, "utility": 1.25},)),),
        notes=("Step times are those of a profile.",),
        timelines=tuple(timelines),
    )


@cache
def with_people() -> RunDocument:
    """Return a run of two policies with robots and more and more people, with their timelines."""
    rows: list[Row] = []
    timelines = []
    for policy in ("fcfs", "timely"):
        for rate in (0.5, 1.0, 2.0, 4.0, 8.0):
            for seed in range(2):
                event_log = MemoryEventLog()
                talks = tuple(
                    Conversation(f"t{i}", (i + 0.1 * seed) / rate, f"p{i}", 400, 40, tpot_s=0.1)
                    for i in range(12)
                )
                settings = SimulationSettings(seed=seed, skip=0)
                both = replace(TRACE, conversations=talks)
                run = simulate(both, make_policy(policy), settings, event_log=event_log)
                names = {"policy": policy, "rate": rate, "seed": seed}
                rows.append(plain(run_row(run, **names)))
                if not seed and rate == 2.0:
                    timelines.append(timeline(policy, run, event_log.events))
    return RunDocument(
        experiment="people",
        keys=("policy", "rate"),
        measures=("utility", *TALK_MEASURES),
        definitions={**DEFINITIONS, **TALK_DEFINITIONS},
        rows=tuple(rows),
        timelines=tuple(timelines),
    )


def filled_with(text: str) -> RunDocument:
    """Return a run that has a text wherever a text can be."""
    run = simulated()
    shown = run.timelines[0]
    timeline = shown.model_copy(
        update={
            "name": text,
            "requests": tuple(f"{text}{n}" for n in range(len(shown.requests))),
            "spans": tuple(
                span.model_copy(update={"agent": text + span.agent, "label": text})
                for span in shown.spans
            ),
        }
    )
    rows, by_task = (
        tuple({**one, "policy": f"{text}{one['policy']}", text: 1.5} for one in some[:6])
        for some in (run.rows, run.task_rows)
    )
    return RunDocument(
        experiment=text, question=text, command=text, profile=text, setup={text: text},
        measures=("utility", text), definitions={"utility": text, text: text}, rows=rows,
        task_rows=tuple({**one, "task": text} for one in by_task),
        papers=(Paper(title=text, note=text, rows=({"policy": text, text: 1.0, "source": text},)),),
        notes=(text,), timelines=(timeline,),
    )  # fmt: skip


def loaded(*runs: RunDocument) -> list[LoadedRun]:
    """Return runs as if their files had been loaded."""
    return [LoadedRun.of(run, WRITTEN) for run in runs]
