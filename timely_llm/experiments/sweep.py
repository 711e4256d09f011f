"""Runs of every policy in every setting with every seed, in virtual time, and their document."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from timely_llm.core.journal import MemoryJournal
from timely_llm.engines.profiles import step_time_profile
from timely_llm.experiments.case import Case, run_case, title
from timely_llm.experiments.contract import Experiment, ExperimentError, Options
from timely_llm.experiments.document import Paper, Row, RunDocument, Timeline, Value
from timely_llm.experiments.lanes import TALK_DEFINITIONS, TALK_MEASURES, run_row
from timely_llm.experiments.metrics import DEFINITIONS, plain, relative, task_rows
from timely_llm.experiments.outcome import Run
from timely_llm.experiments.parallel import run_all
from timely_llm.experiments.policy_spec import WORDS, chosen
from timely_llm.experiments.simulation import Settings
from timely_llm.experiments.sources import composed, given, robots
from timely_llm.experiments.stage import Progress
from timely_llm.experiments.timeline import busiest_window, timeline
from timely_llm.traces.lines import MAX_REQUESTS
from timely_llm.traces.model import Trace

DRAWN_S = 8.0
"""Length of a timeline."""

KEYS = ("workload", "load", "policy")
MEASURES = (
    "utility",
    "urgent_utility",
    "normal_utility",
    "share_served",
    "urgent_response_s",
    "normal_response_s",
    "waiting_s",
)


@dataclass(frozen=True)
class Scored:
    """What came of a run: its row, one for each kind of task, and maybe a part of it in detail."""

    row: Row
    task_rows: tuple[Row, ...]
    timeline: Timeline | None = None

    @classmethod
    def of(cls, run: Run, names: Mapping[str, Value], timeline: Timeline | None = None) -> Scored:
        """Return what came of a run whose rows have the columns `names`."""
        rows = tuple(plain(one) for one in task_rows(run, **names))
        return cls(plain(run_row(run, **names)), rows, timeline)


def score(case: Case) -> Scored:
    """Run a case and return what came of it.

    Raises:
        TimelyError: it cannot be run.
    """
    if not case.drawn_s:
        return Scored.of(run_case(case), case.names)
    journal = MemoryJournal()
    run = run_case(case, journal)
    window = busiest_window(run, case.drawn_s)
    return Scored.of(run, case.names, timeline(title(case.names), run, journal.events, window))


def sweep(options: Options, presets: Sequence[str], progress: Progress) -> list[Scored]:
    """Return what comes of each case of `cases`, in their order.

    Raises:
        TimelyError: something of it is not possible.
    """
    return run_all(score, cases(options, presets), options.jobs, progress)


def cases(options: Options, presets: Sequence[str]) -> list[Case]:
    """Return each policy under each load with each seed, in this order.

    A timeline is drawn of the last workload, the first load and the first seed.

    Args:
        options: the user's.
        presets: workloads that are composed for each seed, unless the user gives a trace.

    Raises:
        TimelyError: something of it is not possible.
    """
    specs, sources = chosen(options), workloads(options, presets)
    drawn = (list(sources)[-1], options.loads[0], 0)
    return [
        Case(
            trace,
            spec,
            settings(options, load, seed),
            {"workload": workload, "policy": spec.text, "load": load, "seed": seed},
            DRAWN_S if (workload, load, seed) == drawn else 0.0,
        )
        for workload, traces in sources.items()
        for load in options.loads
        for spec in specs
        for seed, trace in enumerate(traces)
    ]


def compared(scored: Iterable[Scored], measure: str, to: str) -> list[Scored]:
    """Return the same with one more column of its rows: a measure as a share of a policy's."""
    scored = list(scored)
    rows = relative((one.row for one in scored), KEYS, measure, to)
    return [replace(one, row=plain(new)) for one, new in zip(scored, rows, strict=True)]


def workloads(options: Options, presets: Sequence[str]) -> dict[str, list[Trace]]:
    """Return the trace of each seed by the name of its workload.

    Raises:
        TimelyError: the user's trace cannot be read, is too short, or too long for the load.
    """
    if options.trace is None:
        made = {p: [composed(p, seed) for seed in range(options.seeds)] for p in presets}
    else:
        trace = given(options.trace)
        made = {trace.name or options.trace.stem: [trace] * options.seeds}
    most = max(options.loads) * max(len(t.jobs) for traces in made.values() for t in traces)
    if most > MAX_REQUESTS:
        raise ExperimentError(
            f"a load of {max(options.loads)} makes {most} requests: at most {MAX_REQUESTS}"
        )
    return made


def settings(options: Options, load: int, seed: int) -> Settings:
    """Return what a run is like.

    Raises:
        EngineError: there is no such profile.
    """
    return Settings(
        load=load,
        seed=seed,
        profile=step_time_profile(options.profile),
        network_s=options.network_s,
        prediction_error=options.error,
        true_noise=options.noise,
    )


def document(
    experiment: Experiment,
    options: Options,
    scored: Iterable[Scored],
    *,
    keys: Sequence[str] = KEYS,
    measures: Sequence[str] = MEASURES,
    definitions: Mapping[str, str] | None = None,
    papers: Sequence[Paper] = (),
    notes: Sequence[str] = (),
) -> RunDocument:
    """Return the document of an experiment in virtual time.

    Raises:
        ExperimentError: nothing came of it: the user's trace has no plans, and it is about these.
    """
    scored = list(scored)
    rows = tuple(one.row for one in scored)
    if not rows:
        raise ExperimentError(f"{experiment.name} is about plans: the trace has no jobs")
    known = {**DEFINITIONS, **TALK_DEFINITIONS, **_shares(rows[0]), **(definitions or {})}
    of_talks = (name for name in TALK_MEASURES if name in rows[0])
    return RunDocument(
        experiment=experiment.name,
        question=experiment.question,
        profile=options.profile,
        setup=setup(options),
        keys=tuple(keys),
        measures=tuple(dict.fromkeys((*measures, *of_talks))),
        definitions={name: meaning for name, meaning in known.items() if name in rows[0]},
        rows=rows,
        task_rows=tuple(one for each in scored for one in each.task_rows),
        papers=tuple(papers),
        notes=(*notes, *_notes(rows)),
        timelines=tuple(one.timeline for one in scored if one.timeline is not None),
    )


def setup(options: Options) -> dict[str, Value]:
    """Return what is needed to understand the numbers of runs in virtual time."""
    one = settings(options, 1, 0)
    error = f"log-normal, sigma {one.prediction_error:g}"
    noise = f"log-normal, sigma {one.true_noise:g}" if one.true_noise else "as in the trace"
    of_trace = {"robots": robots(given(options.trace))} if options.trace else {}
    return {
        "engine": "simulated, in virtual time, with the serving loop itself",
        "step times": one.profile.source,
        "step times known": not one.learn_step_time,
        "workload": options.trace.name if options.trace else "composed anew for each seed",
        **of_trace,
        "seeds": f"0 to {options.seeds - 1}",
        "load": "every job is asked so often, 0.2 ms apart, by another robot each time",
        "prompt tokens, shared and computed once": one.shared_tokens,
        "prompt tokens computed for each request": one.own_tokens,
        "execution times": noise,
        "predicted execution times": f"true ones times an error, {error}",
        "network, each way (s)": one.network_s,
        "first jobs that do not count": one.skip,
        "most rows of a step": one.limits.max_rows,
        "most tokens of a step": one.limits.max_step_tokens,
    }


def _shares(columns: Iterable[str]) -> dict[str, str]:
    """Return what columns mean that compare with a policy."""
    parts = {name: name.split("_vs_") for name in columns if "_vs_" in name}
    return {
        name: f"{measure} over that of {policy} in the same setting, with the same seed"
        for name, (measure, policy) in parts.items()
    }


def _notes(rows: Sequence[Row]) -> list[str]:
    """Return what follows from the rows themselves."""
    policies = {str(one["policy"]) for one in rows}
    used = {word for policy in policies for word in policy.split(":")[1:] if word in WORDS}
    notes = [f"`{word}` after a policy's name: {WORDS[word]}." for word in WORDS if word in used]
    if any(one["share_served"] not in (None, 1.0) for one in rows):
        notes.append(
            "Not everybody was served everywhere: where the share is below 1, response and waiting"
            " (in brackets) leave out requests and must not be compared; utility counts them as 0."
        )
    return notes
