"""Runs of every policy on every mix of conversations with every seed, and their document."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from timely_llm.engines.paces import step_time_profile
from timely_llm.experiments.contract import (
    Experiment,
    ExperimentError,
    ReportProgress,
    SeedOptions,
    SimulationOptions,
)
from timely_llm.experiments.parallel import run_all
from timely_llm.experiments.policy_spec import chosen
from timely_llm.experiments.results.document import Paper, Row, RowValue, RunDocument
from timely_llm.experiments.results.metrics import plain
from timely_llm.experiments.results.talks import DEFINITIONS, talk_row
from timely_llm.experiments.sources import given
from timely_llm.experiments.sweep import RunSpec, simulate_run
from timely_llm.experiments.virtual.simulation import LIMITS, SimulationSettings
from timely_llm.experiments.virtual.slice_workload import (
    PROMPT_TOKENS,
    TASKS,
    LengthRange,
    Mix,
    tasks,
)
from timely_llm.traces.model import Trace

PROFILE = "rtx4060ti-chatglm2-6b"
"""The testbed of Zhou et al. 2025."""

POLICIES = (
    "orca",
    "orca:gate",
    "fastserve",
    "fastserve:rows=8",
    "prio:rows=4",
    "prio:rows=4:gate",
    "vtc",
    "slice",
    "slice:gate",
    "timely:streams=sentences",
    "timely+slice",
    "timely+slice:gate",
    "deadline",
    "deadline:gate",
)
"""The paper's, those that others run, and those of this package; some with and without the busy
gate."""

CALIBRATED = "12-18:160-400"
"""Lengths of answers with which Orca alone comes closest to what Zhou et al. 2025 reports of Orca.

`slice-lengths --seeds 3` chose them on the default profile; no other policy took part."""

MEASURES = (
    "attainment",
    "rt_attainment",
    "nrt_attainment",
    "ttft_attainment",
    "tpot_attainment",
    "objective",
    "qoe",
    "rt_completion_s",
    "nrt_completion_s",
    "max_gap_s",
    "stalled_s",
    "max_stall_s",
    "share_refused",
    "share_first",
    "share_finished",
)

KEY_DEFINITIONS: Mapping[str, str] = {
    "lengths": "fewest and most tokens of answers, of real-time tasks : of others, uniform; by"
    " default those with which Orca comes closest to the paper's Orca (slice-lengths)",
    "bound": "most tokens that a request declares, over those of the longest answer of its kind;"
    " below 1, longer answers end there",
    "rate": "tasks a second, Poisson",
    "rt_ratio": "share of real-time tasks among them",
}

_SELDOM = ("lengths", "bound")
"""Keys of which there is one value by default."""

_OF_TASKS = ("seeds", "minutes", "ttft_s", "rates", "ratios", "lengths", "bounds")
"""Options that a trace leaves nothing to."""


@dataclass(frozen=True)
class TalkOptions(SimulationOptions):
    """Options of experiments with conversations alone.

    Attributes:
        charged: prompts of conversations take time, which Zhou et al. 2025's experiments leave out.
        max_rows: most rows of a step.
    """

    policies: tuple[str, ...] = POLICIES
    profile: str = PROFILE
    network_s: float = 0.0
    charged: bool = False
    max_rows: int = LIMITS.max_rows


@dataclass(frozen=True)
class TaskOptions(SeedOptions, TalkOptions):
    """Options of experiments with tasks that come and go.

    Attributes:
        minutes: time in which tasks arrive; None: the time of the first 300.
        trace: a file of conversations in place of the tasks; nothing is random then.
        ttft_s: seconds to the first token that conversations ask for. Zhou et al. 2025 names no
            value: the default is this package's.
        rates: conversations a second.
        ratios: shares of real-time tasks among them.
        lengths: of their answers, in the notation of `slice_workload.LengthRange`. Zhou et al. 2025
            names none: the default is `CALIBRATED`.
        bounds: most tokens that they declare, over those of the longest answer of their kind.
    """

    minutes: float | None = None
    trace: Path | None = None
    ttft_s: float = Mix.ttft_s
    rates: tuple[float, ...] = (1.0,)
    ratios: tuple[float, ...] = (0.7,)
    lengths: tuple[str, ...] = (CALIBRATED,)
    bounds: tuple[float, ...] = (1.0,)


AnyTaskOptions = TypeVar("AnyTaskOptions", bound=TaskOptions)


def mix_experiment(
    name: str, question: str, varied: str, paper: Paper, defaults: AnyTaskOptions
) -> Experiment[AnyTaskOptions]:
    """Return an experiment that varies one property of the mix of tasks.

    Args:
        name: name of its command.
        question: one sentence.
        varied: the property: a key of `KEY_DEFINITIONS`, the last key of its rows.
        paper: the paper's numbers.
        defaults: its options with their defaults.
    """
    keys = (*(key for key in KEY_DEFINITIONS if key != varied), "policy", varied)

    def run(options: AnyTaskOptions, progress: ReportProgress) -> RunDocument:
        return document(made, options, sweep(options, progress), keys=keys, papers=(paper,))

    made = Experiment(name, question, run, defaults)
    return made


def score(case: RunSpec) -> Row:
    """Run a case and return its row.

    Raises:
        TimelyError: it cannot be run.
    """
    return plain(talk_row(simulate_run(case).conversations, **case.names))


def sweep(options: TaskOptions, progress: ReportProgress) -> list[Row]:
    """Return the row of each case of `cases`, in their order.

    Raises:
        TimelyError: something of it is not possible.
    """
    return run_all(score, cases(options), options.jobs, progress)


def cases(options: TaskOptions) -> list[RunSpec]:
    """Return each policy on each mix with each seed; all see the same tasks.

    Raises:
        TimelyError: something of it is not possible.
    """
    specs, like = chosen(options.policies), settings(options)
    if options.trace is not None:
        trace, names = _recorded(options, options.trace)
        return [RunSpec(trace, spec, like, {**names, "policy": spec.text}) for spec in specs]
    if not options.lengths:
        raise ExperimentError(f"no lengths are named: they are like {LengthRange()}")
    if min(options.rates) <= 0.0:
        raise ExperimentError("the rate must be above 0: at 0 no request comes")
    return [
        RunSpec(
            tasks(_mix(options, rate, ratio, lengths, bound), seed, options.minutes),
            spec,
            replace(like, seed=seed),
            {"lengths": lengths, "bound": bound, "policy": spec.text, "rate": rate,
             "rt_ratio": ratio, "seed": seed},
        )
        for lengths in options.lengths
        for bound in options.bounds
        for rate in options.rates
        for ratio in options.ratios
        for spec in specs
        for seed in options.each_seed
    ]  # fmt: skip


def _mix(options: TaskOptions, rate: float, ratio: float, lengths: str, bound: float) -> Mix:
    return Mix(rate, ratio, LengthRange.parse(lengths), bound, options.ttft_s)


def _recorded(options: TaskOptions, file: Path) -> tuple[Trace, dict[str, RowValue]]:
    """Return the conversations of a trace, and the key columns of its rows.

    Raises:
        TimelyError: the trace cannot be read, has no conversations, or an option is about tasks
            that it replaces.
    """
    usual = type(options)()
    for name in _OF_TASKS:
        if getattr(options, name) != getattr(usual, name):
            raise ExperimentError(f"{file.name} has tasks of its own: leave out {name}")
    trace = given(file)
    asked = trace.conversations
    if not asked:
        raise ExperimentError(f"{file.name} has no conversations")
    seconds = asked[-1].arrival_s - asked[0].arrival_s
    machines = sum(one.deadline_s < math.inf for one in asked)
    names: dict[str, RowValue] = {
        "lengths": trace.name or file.stem,
        "bound": "the trace's",
        "rate": round(len(asked) / seconds, 3) if seconds else None,
        "rt_ratio": round(machines / len(asked), 3),
        "seed": options.first_seed,
    }
    return replace(trace, jobs=()), names


def settings(options: TalkOptions) -> SimulationSettings:
    """Return what every run is like.

    Raises:
        EngineError: there is no such profile.
    """
    profile = step_time_profile(options.profile)
    if not options.charged:
        profile = replace(profile, prefill_token_s=0.0, prefill_s=0.0, long_prefill_token_s=None)
    limits = replace(LIMITS, max_rows=options.max_rows)
    return SimulationSettings(profile=profile, network_s=options.network_s, limits=limits)


def document(
    experiment: Experiment[Any],
    options: TalkOptions,
    rows: Iterable[Row],
    *,
    keys: Sequence[str],
    measures: Sequence[str] = MEASURES,
    definitions: Mapping[str, str] | None = None,
    papers: Sequence[Paper] = (),
    facts: Mapping[str, RowValue] | None = None,
) -> RunDocument:
    """Return the document of an experiment with conversations alone.

    `definitions` are of columns that others do not have, `facts` of a set-up that is another one.
    Lengths and bound name a setting only if there are several.
    """
    rows = tuple(rows)
    cut = ("share_cut",) if any(row.get("share_cut") for row in rows) else ()
    seldom = [key for key in _SELDOM if key in keys]
    fixed = {key: rows[0][key] for key in seldom if len({row[key] for row in rows}) == 1}
    known = {**KEY_DEFINITIONS, **DEFINITIONS, **(definitions or {})}
    return experiment.document(
        options.profile,
        {**setup(options), **fixed, **(facts or {})},
        keys=tuple(key for key in keys if key not in fixed),
        measures=(*measures, *cut),
        definitions={name: known[name] for name in rows[0] if name in known},
        rows=rows,
        papers=tuple(papers),
    )


def setup(options: TalkOptions) -> dict[str, RowValue]:
    """Return what is needed to understand the numbers."""
    like, (fewest, most) = settings(options), PROMPT_TOKENS
    tasks_of = options if isinstance(options, TaskOptions) else None
    trace = tasks_of.trace if tasks_of else None
    random = tasks_of is not None and trace is None
    ttft_s = tasks_of.ttft_s if tasks_of else Mix.ttft_s
    minutes = tasks_of.minutes if tasks_of else None
    span = f"{TASKS} tasks" if minutes is None else f"{minutes:g} minutes of tasks"
    made = (
        f"{span} at Poisson times for each seed; real-time tasks (20 tokens/s,"
        " 1.5 s for all of the answer, worth 100), voice chats (8 tokens/s) and questions (10"
        f" tokens/s), as many of each, both with {ttft_s:g} s to the first token (this package's:"
        " the paper names none), worth 1"
    )
    free = "take no time: the first token comes from a step with one more row"
    charged = f"{fewest} to {most} tokens, uniform, each of which takes time"
    return {
        "engine": "simulated, in virtual time, with the serving loop itself",
        "step times": like.profile.source,
        "step times known": not like.learn_step_time,
        "workload": trace.name if trace else made,
        "prompts": charged if options.charged else free,
        "seeds": tasks_of.named_seeds if tasks_of and random else "nothing is random",
        "network, each way (s)": like.network_s,
        "most rows of a step": like.limits.max_rows,
    }
