"""Runs of every policy on every mix of conversations with every seed, and their document."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from timely_llm.engines.profiles import step_time_profile
from timely_llm.experiments.case import Case, run_case
from timely_llm.experiments.contract import Experiment, ExperimentError, Options
from timely_llm.experiments.document import Paper, Row, RunDocument, Value
from timely_llm.experiments.metrics import plain
from timely_llm.experiments.parallel import run_all
from timely_llm.experiments.policy_spec import chosen
from timely_llm.experiments.simulation import Settings
from timely_llm.experiments.slice_workload import PROMPT_TOKENS, TASKS, Lengths, Mix, tasks
from timely_llm.experiments.stage import Progress
from timely_llm.experiments.talks import DEFINITIONS, talk_row

PROFILE = "rtx4060ti-chatglm2-6b"
"""The testbed of paper 000."""

POLICIES = ("orca", "fastserve", "slice", "timely+slice", "deadline")

MEASURES = (
    "attainment",
    "rt_attainment",
    "nrt_attainment",
    "ttft_attainment",
    "tpot_attainment",
    "rt_completion_s",
    "nrt_completion_s",
    "max_gap_s",
    "stalled_s",
    "max_stall_s",
    "share_served",
)

KEY_DEFINITIONS: Mapping[str, str] = {
    "lengths": "fewest and most tokens of answers, of real-time tasks : of others, uniform",
    "bound": "most tokens that a request declares, over those of the longest answer of its kind",
    "rate": "tasks a second, Poisson",
    "rt_ratio": "share of real-time tasks among them",
}

_SELDOM = ("lengths", "bound")
"""Keys of which there is one value by default."""


def defaults(**changed: object) -> Options:
    """Return the options of paper 000's experiments, with what one of them has otherwise."""
    made = Options(policies=POLICIES, seeds=5, profile=PROFILE, network_s=0.0)
    return replace(made, **changed)  # type: ignore[arg-type]


def score(case: Case) -> Row:
    """Run a case and return its row.

    Raises:
        TimelyError: it cannot be run.
    """
    return plain(talk_row(run_case(case).talks, **case.names))


def sweep(options: Options, progress: Progress) -> list[Row]:
    """Return the row of each case of `cases`, in their order.

    Raises:
        TimelyError: something of it is not possible.
    """
    return run_all(score, cases(options), options.jobs, progress)


def cases(options: Options) -> list[Case]:
    """Return each policy on each mix with each seed; all see the same tasks.

    Raises:
        TimelyError: something of it is not possible.
    """
    specs, like = chosen(options), settings(options)
    if not options.lengths:
        raise ExperimentError(f"no lengths are named: they are like {Lengths()}")
    if min(options.rates) <= 0.0:
        raise ExperimentError("the rate must be above 0: at 0 nobody asks")
    return [
        Case(
            tasks(Mix(rate, ratio, Lengths.parse(lengths), bound), seed),
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
        for seed in range(options.seeds)
    ]  # fmt: skip


def settings(options: Options) -> Settings:
    """Return what every run is like.

    Raises:
        EngineError: there is no such profile.
    """
    profile = step_time_profile(options.profile)
    if not options.charged:
        profile = replace(profile, prefill_token_s=0.0, prefill_s=0.0)
    return Settings(profile=profile, network_s=options.network_s)


def document(
    experiment: Experiment,
    options: Options,
    rows: Iterable[Row],
    *,
    keys: Sequence[str],
    measures: Sequence[str] = MEASURES,
    definitions: Mapping[str, str] | None = None,
    papers: Sequence[Paper] = (),
    facts: Mapping[str, Value] | None = None,
) -> RunDocument:
    """Return the document of an experiment with conversations alone.

    `definitions` are of columns that others do not have, `facts` of a set-up that is another one.
    Lengths and bound name a setting only if there are several.
    """
    rows = tuple(rows)
    seldom = [key for key in _SELDOM if key in keys]
    fixed = {key: rows[0][key] for key in seldom if len({row[key] for row in rows}) == 1}
    known = {**KEY_DEFINITIONS, **DEFINITIONS, **(definitions or {})}
    return RunDocument(
        experiment=experiment.name,
        question=experiment.question,
        profile=options.profile,
        setup={**setup(options), **fixed, **(facts or {})},
        keys=tuple(key for key in keys if key not in fixed),
        measures=tuple(measures),
        definitions={name: known[name] for name in rows[0] if name in known},
        rows=rows,
        papers=tuple(papers),
    )


def setup(options: Options) -> dict[str, Value]:
    """Return what is needed to understand the numbers."""
    like, (fewest, most) = settings(options), PROMPT_TOKENS
    free = "take no time: the first token comes from a step with one more row"
    charged = f"{fewest} to {most} tokens, uniform, each of which takes time"
    return {
        "engine": "simulated, in virtual time, with the serving loop itself",
        "step times": like.profile.source,
        "step times known": not like.learn_step_time,
        "workload": f"{TASKS} tasks at Poisson times for each seed; real-time tasks (20 tokens/s,"
        " 1.5 s for all of the answer, worth 100), voice chats (8 tokens/s) and questions (10"
        " tokens/s), as many of each, both with 1 s to the first token, worth 1",
        "prompts": charged if options.charged else free,
        "seeds": f"0 to {options.seeds - 1}",
        "network, each way (s)": like.network_s,
        "most rows of a step": like.limits.max_rows,
    }
