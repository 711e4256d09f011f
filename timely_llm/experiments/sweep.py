"""Virtual-time runs of every policy under every load with every seed, and their document."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from timely_llm.core.events.log import EventLog, MemoryEventLog
from timely_llm.engines.paces import step_time_profile
from timely_llm.experiments.contract import (
    Experiment,
    ExperimentError,
    PlanOptions,
    ReportProgress,
    WorkloadOptions,
)
from timely_llm.experiments.parallel import run_all
from timely_llm.experiments.policy_spec import PAPER_BOUND, WORDS, PolicySpec, chosen
from timely_llm.experiments.results.document import (
    Paper,
    Row,
    RowValue,
    RunDocument,
    TimelineDocument,
)
from timely_llm.experiments.results.lanes import TALK_DEFINITIONS, TALK_MEASURES, run_row
from timely_llm.experiments.results.metrics import (
    DEFINITIONS,
    UNBOUNDED,
    plain,
    relative,
    task_rows,
)
from timely_llm.experiments.results.timeline import busiest_window, timeline
from timely_llm.experiments.sources import composed, given, robots, shipped_skill_sets
from timely_llm.experiments.virtual.durations import MODEL, NOISY
from timely_llm.experiments.virtual.outcome import Run
from timely_llm.experiments.virtual.simulation import SimulationSettings, simulate
from timely_llm.traces.lines import MAX_REQUESTS
from timely_llm.traces.model import Trace


@dataclass(frozen=True)
class RunSpec:
    """One run.

    Attributes:
        trace: its workload.
        spec: its policy, with the settings that the policy changes.
        settings: all other settings.
        names: key columns of its row, such as policy, load and seed.
        timeline_s: seconds of its busiest window that are drawn as a timeline; 0 for none.
        explain: the timeline gives the reasons of waits.
    """

    trace: Trace
    spec: PolicySpec
    settings: SimulationSettings
    names: Mapping[str, RowValue]
    timeline_s: float = 0.0
    explain: bool = False


def simulate_run(spec: RunSpec, event_log: EventLog | None = None) -> Run:
    """Run in virtual time and return the outcomes of requests.

    Raises:
        TimelyError: the run is not possible.
    """
    settings, policy = spec.spec.settings(spec.settings), spec.spec.make()
    try:
        return simulate(
            spec.trace, policy, settings, skill_sets=shipped_skill_sets(), event_log=event_log,
            explain=spec.explain and event_log is not None,
        )  # fmt: skip
    except ArithmeticError as error:
        text = spec.spec.text
        raise ExperimentError(f"{text}: an option has an impossible value: {error}") from error


def title(names: Mapping[str, RowValue]) -> str:
    """Return the title of a run from the key columns of its row."""
    return ", ".join(
        [str(names["policy"]), *(f"{k} {v}" for k, v in names.items() if k != "policy")]
    )


GAIN_BASELINE = "fcfs"
GAIN_MEASURES = (
    "utility",
    "utility_unclamped",
    "utility_gain",
    "share_first",
    "share_finished",
    "response_s",
    "waiting_s",
    f"waiting_s_vs_{GAIN_BASELINE}",
)
"""Measures of experiments that compare each policy with `GAIN_BASELINE`."""
GAIN_NOTE = (
    "`timely` has batches of at most 8, as the code of Ling et al. 2024 has;"
    f" `{UNBOUNDED}` has batches as large as the engine's."
)

DRAWN_S = 8.0
"""Length of a timeline, seconds."""

KEYS = ("workload", "load", "policy")
MEASURES = (
    "utility",
    "urgent_utility",
    "normal_utility",
    "share_first",
    "share_finished",
    "urgent_response_s",
    "normal_response_s",
    "waiting_s",
)


@dataclass(frozen=True)
class Scored:
    """The results of a run: its row, a row for each kind of task, and an optional timeline."""

    row: Row
    task_rows: tuple[Row, ...]
    timeline: TimelineDocument | None = None

    @classmethod
    def of(
        cls, run: Run, names: Mapping[str, RowValue], timeline: TimelineDocument | None = None
    ) -> Scored:
        """Return the results of a run; `names` are the key columns of its rows."""
        rows = tuple(plain(one) for one in task_rows(run, **names))
        return cls(plain(run_row(run, **names)), rows, timeline)


def score(case: RunSpec) -> Scored:
    """Run a case and return its results.

    Raises:
        TimelyError: the run is not possible.
    """
    if not case.timeline_s:
        return Scored.of(simulate_run(case), case.names)
    event_log = MemoryEventLog()
    run = simulate_run(case, event_log)
    window = busiest_window(run, case.timeline_s)
    return Scored.of(run, case.names, timeline(title(case.names), run, event_log.events, window))


def sweep(
    options: WorkloadOptions, presets: Sequence[str], progress: ReportProgress
) -> list[Scored]:
    """Return the results of each run of `cases`, in their order.

    Raises:
        TimelyError: an option is not possible.
    """
    return run_all(score, cases(options, presets), options.jobs, progress)


def cases(options: WorkloadOptions, presets: Sequence[str]) -> list[RunSpec]:
    """Return a run for each workload, load, policy and seed, in this order.

    The runs of the last workload with the first load and the first seed have a timeline.

    Args:
        options: the user's.
        presets: workloads that are composed for each seed, unless the user gives a trace.

    Raises:
        TimelyError: an option is not possible.
    """
    specs, sources = (
        chosen(options.policies, options.harness, options.uncached),
        workloads(options, presets),
    )
    drawn = (list(sources)[-1], options.loads[0], options.first_seed)
    return [
        RunSpec(
            trace,
            spec,
            settings(options, load, seed),
            {"workload": workload, "policy": spec.text, "load": load, "seed": seed},
            DRAWN_S if (workload, load, seed) == drawn else 0.0,
            options.explain,
        )
        for workload, traces in sources.items()
        for load in options.loads
        for spec in specs
        for seed, trace in zip(options.each_seed, traces, strict=True)
    ]


def compared(scored: Iterable[Scored], measure: str, to: str) -> list[Scored]:
    """Return results with one more column in their rows: a measure as a share of a policy's."""
    scored = list(scored)
    rows = relative((one.row for one in scored), KEYS, measure, to)
    return [replace(one, row=plain(new)) for one, new in zip(scored, rows, strict=True)]


def workloads(options: WorkloadOptions, presets: Sequence[str]) -> dict[str, list[Trace]]:
    """Return the traces of all seeds, by workload.

    Raises:
        TimelyError: the user's trace cannot be read, is too short, or too long for the load, or a
            composed workload has too few jobs.
    """
    if options.trace is None:
        made = {p: [composed(p, seed, options.minutes) for seed in options.each_seed]
                for p in presets}  # fmt: skip
    elif options.minutes is not None:
        raise ExperimentError("a trace has its own length: leave out minutes")
    else:
        trace = given(options.trace)
        made = {trace.name or options.trace.stem: [trace] * options.seeds}
    most = max(options.loads) * max(len(t.jobs) for traces in made.values() for t in traces)
    if most > MAX_REQUESTS:
        raise ExperimentError(
            f"a load of {max(options.loads)} makes {most} requests: at most {MAX_REQUESTS}"
        )
    return made


def settings(options: PlanOptions, load: int, seed: int) -> SimulationSettings:
    """Return the settings of a run.

    Raises:
        EngineError: no profile has the name.
    """
    return SimulationSettings(
        load=load,
        seed=seed,
        profile=step_time_profile(options.profile),
        network_s=options.network_s,
        prediction_error=options.error,
        true_noise=options.noise,
        durations=options.predicted if isinstance(options, WorkloadOptions) else NOISY,
    )


def document(
    experiment: Experiment[Any],
    options: PlanOptions,
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
        ExperimentError: there are no rows, because the user's trace has no plans.
    """
    scored = list(scored)
    rows = tuple(one.row for one in scored)
    if not rows:
        raise ExperimentError(f"{experiment.name} is about plans: the trace has no jobs")
    known = {**DEFINITIONS, **TALK_DEFINITIONS, **_shares(rows[0]), **(definitions or {})}
    of_talks = (name for name in TALK_MEASURES if name in rows[0])
    return experiment.document(
        options.profile,
        setup(options),
        keys=tuple(keys),
        measures=tuple(dict.fromkeys((*measures, *of_talks))),
        definitions={name: meaning for name, meaning in known.items() if name in rows[0]},
        rows=rows,
        task_rows=tuple(one for each in scored for one in each.task_rows),
        papers=tuple(papers),
        notes=(*notes, *_notes(rows)),
        timelines=tuple(one.timeline for one in scored if one.timeline is not None),
    )


_MODELLED = (
    "polynomials of the arguments, lower bounds of searches (Ling et al. 2024, §4.3), both"
    " corrected by the robots' reports"
)


def setup(options: PlanOptions) -> dict[str, RowValue]:
    """Return the conditions of runs in virtual time, for the reader of their numbers."""
    one = settings(options, 1, 0)
    error = f"true times multiplied by an error, log-normal, sigma {one.prediction_error:g}"
    noise = f"log-normal, sigma {one.true_noise:g}" if one.true_noise else "as in the trace"
    trace = options.trace if isinstance(options, WorkloadOptions) else None
    of_trace = {"robots": robots(given(trace))} if trace else {}
    return {
        "engine": "simulated, in virtual time, with the serving loop itself",
        "step times": one.profile.source,
        "step times known": not one.learn_step_time,
        "workload": trace.name if trace else "composed anew for each seed",
        **({} if options.minutes is None else {"minutes of each workload": options.minutes}),
        **of_trace,
        "seeds": options.named_seeds,
        "load": "requests for each job, 0.2 ms apart, each by another robot",
        "prompt tokens, shared and computed once": one.shared_tokens,
        "prompt tokens computed for each request": one.own_tokens,
        "execution times": noise,
        "predicted execution times": _MODELLED if one.durations == MODEL else error,
        "network, each way (s)": one.network_s,
        "first jobs that do not count": one.skip,
        "most rows of a step": one.limits.max_rows,
        "most tokens of a step": one.limits.max_step_tokens,
    }


def _shares(columns: Iterable[str]) -> dict[str, str]:
    """Return the meanings of the columns that compare with a policy."""
    parts = {name: name.split("_vs_") for name in columns if "_vs_" in name}
    return {
        name: f"{measure} over that of {policy} in the same setting, with the same seed"
        for name, (measure, policy) in parts.items()
    }


def _notes(rows: Sequence[Row]) -> list[str]:
    """Return the notes that follow from the rows."""
    policies = {str(one["policy"]) for one in rows}
    used = {part.partition("=")[0] for policy in policies for part in policy.split(":")[1:]}
    notes = []
    if any(policy.split(":")[0] == PAPER_BOUND for policy in policies):
        notes.append(
            f"`{PAPER_BOUND}` is `timely:budget=ert:urgent=laxity:speed=measured`: the worst-case"
            " bound of Ling et al. 2024, §4.4, to the letter."
        )
    notes += [f"`{word}` after a policy's name: {WORDS[word]}." for word in WORDS if word in used]
    if any(one["share_served"] not in (None, 1.0) for one in rows):
        notes.append(
            "Some requests were not served. Where the share is below 1, response and waiting times"
            " (in brackets) leave those requests out and must not be compared; utility counts them"
            " as 0."
        )
    return notes
