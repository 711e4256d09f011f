"""The same in real time: the serving loop, a real engine and model, simulated robots and people.

What the model says, or the workload's script, is then said again in virtual time, so that both can
be compared.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from timely_llm.core.errors import RequestError
from timely_llm.engines.contract import Engine
from timely_llm.experiments import workload
from timely_llm.experiments.contract import Experiment, ExperimentError, Options
from timely_llm.experiments.document import RunDocument, Value
from timely_llm.experiments.live_engines import LiveEngines
from timely_llm.experiments.outcome import Run
from timely_llm.experiments.policy_spec import PolicySpec, chosen
from timely_llm.experiments.recorded import LIVE_DEFINITIONS
from timely_llm.experiments.scripted import fitted, longest, serve_scripted
from timely_llm.experiments.simulation import Settings, simulate_works
from timely_llm.experiments.sources import shipped_skill_sets
from timely_llm.experiments.spoken import again, serve
from timely_llm.experiments.stage import Progress
from timely_llm.experiments.stock import StockSpec
from timely_llm.experiments.sweep import MEASURES, Scored, document, settings, workloads
from timely_llm.policies.contract import Policy
from timely_llm.traces.lines import in_order
from timely_llm.traces.model import Trace
from timely_llm.traces.streams import request_of

Virtual = Callable[[Policy], Run]
"""Serves what was served in real time again in virtual time, by a new policy."""

SKIP = 5
"""First jobs that do not count: runs are short."""
KEYS = ("workload", "load", "policy", "engine")
PACED_NOTE = (
    "A real step is never shorter than the profile says. It is longer when this machine is slow,"
    " and between two steps there is the loop's own time: both are missing in virtual time."
)
OWN_PACE_NOTE = (
    "A real step takes as long as it takes; in virtual time, as long as the profile says, which the"
    " policies also begin with."
)
STOCK_NOTE = (
    "vllm-fcfs and vllm-priority are vLLM's own schedulers, in order of arrival and with urgent"
    " requests first, on engines of their own in the same harness; plans go out whole. rows is its"
    " max_num_seqs. They are not there in virtual time."
)
DEFINITIONS = {
    "engine": "the real one in real time, or simulated in virtual time, saying the same words",
    "step_s": "mean seconds from one step of the engine to the next while it works",
    "stalled_s": LIVE_DEFINITIONS["stalled_s"],
}


def run(
    experiment: Experiment, options: Options, presets: Sequence[str], progress: Progress
) -> RunDocument:
    """Return an experiment on the real engine, and the same again in virtual time.

    The real engine's steps take as long as the profile says, or longer if this machine is slow;
    with `own_pace` as long as they take. With `scripted` sequences say the workload's segments.
    Each setting has two rows for a seed: the column `engine` says which.

    Args:
        experiment: whose document it is.
        options: the user's; `seconds` of each workload are served.
        presets: workloads that are composed for each seed, unless the user gives a trace.
        progress: called with requests ended and all requests.

    Raises:
        TimelyError: something of it is not possible.
    """
    arms = _arms(options)
    if any(isinstance(arm, PolicySpec) and "uncached" in arm.words for arm in arms):
        raise ExperimentError("in real time prompts are always cached: leave out uncached")
    if options.noise and not options.scripted:
        raise ExperimentError(
            "in real time execution times are those of the plans that are made: leave out noise,"
            " or ask for scripted"
        )
    cases = [
        (_names(name, load, seed, arm.text), arm, _beginning(trace, options))
        for name, traces in workloads(options, presets).items()
        for load in options.loads
        for seed, trace in enumerate(traces)
        for arm in arms
    ]
    total, done = sum(_asked(part, int(names["load"])) for names, _, part in cases), 0
    scored: list[Scored] = []
    engines = LiveEngines(options)
    serve_part = _scripted if options.scripted else _spoken
    try:
        for names, arm, part in cases:
            wanted = settings(options, int(names["load"]), int(names["seed"]))
            if isinstance(arm, PolicySpec):
                wanted = arm.settings(wanted)
            tell = partial(_tell, progress, done, total)
            run, virtual = serve_part(part, wanted, *engines.of(arm), tell)
            done += _asked(part, wanted.load)
            scored.append(_scored(run, {**names, "engine": options.engine}))
            if isinstance(arm, PolicySpec):  # vLLM's schedulers are not there in virtual time
                scored.append(_scored(virtual(arm.make()), {**names, "engine": "simulated"}))
    finally:
        engines.close()
    stock_notes = [STOCK_NOTE] if any(isinstance(arm, StockSpec) for arm in arms) else []
    made = document(
        experiment, options, scored, keys=KEYS, measures=(*MEASURES, "step_s"),
        definitions=DEFINITIONS,
        notes=[OWN_PACE_NOTE if options.own_pace else PACED_NOTE, *stock_notes],
    )  # fmt: skip
    return made.model_copy(update={"setup": {**made.setup, **_setup(options)}})


def _spoken(
    part: Trace, settings: Settings, engine: Engine, policy: Policy, tell: Progress
) -> tuple[Run, Virtual]:
    """Return what robots got of a model's own plans, and what says these again."""
    known = shipped_skill_sets()
    used = {name: known[name] for name in {job.skill_set for job in part.jobs}}
    works = workload.asked(part, settings.load, SKIP)
    spoken = serve(works, used, engine, policy, settings, tell, part.conversations)
    return spoken.run, partial(again, spoken, settings=settings)


def _scripted(
    part: Trace, settings: Settings, engine: Engine, policy: Policy, tell: Progress
) -> tuple[Run, Virtual]:
    """Return what robots got of the workload's own segments, and what says these again."""
    works = workload.works(
        part, settings.load, settings.seed, settings.prediction_error, settings.true_noise, SKIP,
        shipped_skill_sets(),
    )  # fmt: skip
    settings = fitted(settings, engine.capacity.max_model_len, longest(works))
    run = serve_scripted(works, engine, policy, settings, tell, part.conversations)
    return run, lambda policy: simulate_works(works, policy, settings, part.conversations)


def _arms(options: Options) -> list[PolicySpec | StockSpec]:
    """Return what serves: policies, and on vLLM its own schedulers too.

    Raises:
        ExperimentError: there is none, or one is not possible or named twice.
    """
    stock = {}
    if options.engine == "vllm":
        stock = {text: spec for text in options.policies if (spec := StockSpec.parse(text))}
    ours = tuple(text for text in options.policies if text not in stock)
    known = chosen(replace(options, policies=ours)) if ours or not stock else []
    if len(stock) + len(ours) != len(options.policies):
        raise ExperimentError("one of vLLM's schedulers is named twice")
    return [*stock.values(), *known]


def _tell(progress: Progress, before: int, total: int, ended: int, _: int) -> None:
    progress(before + ended, total)


def _names(workload: str, load: int, seed: int, policy: str) -> dict[str, Any]:
    return {"workload": workload, "policy": policy, "load": load, "seed": seed}


def _scored(run: Run, names: dict[str, Value]) -> Scored:
    scored = Scored.of(run, names)
    return replace(scored, row={**scored.row, "step_s": run.busy_s / max(run.steps, 1)})


def _setup(options: Options) -> dict[str, Value]:
    made: dict[str, Value] = {
        "engine": f"{options.engine} in real time, and simulated",
        "model": options.model or "the embedded one",
        "options of vLLM's own": ", ".join(options.engine_args) or "none",
        "pace": "the engine's own" if options.own_pace else options.profile,
        "seconds of each workload": options.seconds,
        "first jobs that do not count": SKIP,
    }
    if options.scripted:
        return made | {
            "words": "the workload's segments, whatever the model computes",
            "prompt tokens, shared and computed once": f"{Settings().shared_tokens}, or as many as"
            " the engine takes",
            "prompt tokens computed for each request": f"{Settings().own_tokens}, none alike",
        }
    return made | {
        "words": "the model's, constrained to the grammar",
        "execution times": "as predicted of the plan that was made, over the error",
        "prompt tokens, shared and computed once": "those of the skill set",
        "prompt tokens computed for each request": "those of the task",
    }


def _asked(part: Trace, load: int) -> int:
    """Return how many requests are asked."""
    return len(part.jobs) * load + len(part.conversations)


def _beginning(trace: Trace, options: Options) -> Trace:
    """Return what is asked in the first seconds of a trace.

    Raises:
        ExperimentError: too little, or of a robot that the package does not know, or of a person
            whom no server takes.
    """
    first_s, seconds = in_order(trace)[0].arrival_s, options.seconds
    jobs = tuple(job for job in trace.jobs if job.arrival_s < first_s + seconds)
    talks = tuple(talk for talk in trace.conversations if talk.arrival_s < first_s + seconds)
    if trace.jobs and len(jobs) <= SKIP:
        raise ExperimentError(
            f"the first {seconds:g} s of {trace.name} have {len(jobs)} jobs, and the first {SKIP}"
            " do not count: ask for more seconds"
        )
    known = shipped_skill_sets()
    for job in jobs if not options.scripted else ():
        if job.skill_set not in known or not job.text:
            raise ExperimentError(
                f"job {job.id!r} cannot be asked in real time: it needs a text and a skill set of"
                f" {', '.join(known)}"
            )
    for talk in talks:
        try:
            request_of(talk)
        except RequestError as error:
            raise ExperimentError(
                f"conversation {talk.id!r} cannot be asked in real time: {error}"
            ) from error
    return Trace(trace.name, trace.source, jobs, talks)
