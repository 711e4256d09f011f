"""Experiments in real time: the serving loop, a real engine and model, simulated robots and people.

The generated tokens, or the workload's script, are then replayed in virtual time for comparison.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from timely_llm.core.errors import RequestError
from timely_llm.core.generation import Generation, PlanGeneration
from timely_llm.core.step import Capacity, StepPlan
from timely_llm.core.time_utility import NORMAL
from timely_llm.engines.contract import Engine
from timely_llm.engines.paces import step_time_profile
from timely_llm.engines.registry import make_engine, parse_engine_args
from timely_llm.engines.sequences import EngineLimits
from timely_llm.engines.vllm.version import import_core
from timely_llm.engines.wrappers import PacedEngine
from timely_llm.experiments.contract import (
    STOCK,
    Experiment,
    ExperimentError,
    RealTimeOptions,
    ReportProgress,
)
from timely_llm.experiments.policy_spec import PolicySpec, chosen
from timely_llm.experiments.realtime.serve import (
    MAX_MODEL_LEN,
    again,
    fitted,
    longest,
    serve,
    serve_scripted,
)
from timely_llm.experiments.recorded.score import LIVE_DEFINITIONS
from timely_llm.experiments.results.document import RowValue, RunDocument
from timely_llm.experiments.sources import shipped_skill_sets
from timely_llm.experiments.sweep import MEASURES, Scored, document, settings, workloads
from timely_llm.experiments.virtual import workload
from timely_llm.experiments.virtual.durations import NOISY
from timely_llm.experiments.virtual.outcome import Run
from timely_llm.experiments.virtual.simulation import SimulationSettings, simulate_works
from timely_llm.policies.contract import Policy
from timely_llm.policies.step_time import StepTime
from timely_llm.traces.lines import in_order
from timely_llm.traces.model import Trace
from timely_llm.traces.streams import request_of

Virtual = Callable[[Policy], Run]
"""Replays a real-time run in virtual time, under a new policy."""

SKIP = 5
"""First jobs that do not count; fewer than in virtual time, since runs are short."""
KEYS = ("workload", "load", "policy", "engine")
PACED_NOTE = (
    "A real step is at least as long as in the profile. It is longer on a slow machine, and the"
    " loop's own time lies between two steps. Virtual time has neither."
)
OWN_PACE_NOTE = (
    "Real steps are not stretched to the profile. Steps in virtual time, and the policies' first"
    " predictions, are those of the profile."
)
STOCK_NOTE = (
    "vllm-fcfs and vllm-priority are vLLM's own schedulers: order of arrival, and urgent requests"
    " first. Each has an engine of its own in the same harness and delivers whole plans. rows is"
    " vLLM's max_num_seqs. They do not run in virtual time."
)
DEFINITIONS = {
    "engine": "the real engine in real time, or simulated in virtual time with the same tokens",
    "step_s": "mean seconds from one step of the engine to the next while it works",
    "stalled_s": LIVE_DEFINITIONS["stalled_s"],
}

_ROWS = "rows="


def run(
    experiment: Experiment[Any],
    options: RealTimeOptions,
    presets: Sequence[str],
    progress: ReportProgress,
) -> RunDocument:
    """Run an experiment on a real engine, replay it in virtual time, and return both results.

    Real steps are stretched to the profile, unless `own_pace` is set. With `scripted`, sequences
    produce the workload's segments. Each setting and seed has a row for each value of the column
    `engine`.

    Args:
        experiment: the experiment of the document.
        options: the user's; `seconds` of each workload are served.
        presets: workloads that are composed for each seed, unless the user gives a trace.
        progress: called with the ended and the total number of requests.

    Raises:
        TimelyError: an option is not possible.
    """
    arms = _arms(options)
    if any(isinstance(arm, PolicySpec) and "uncached" in arm.words for arm in arms):
        raise ExperimentError("in real time prompts are always cached: leave out uncached")
    if options.noise and not options.scripted:
        raise ExperimentError(
            "in real time, execution times are those of the generated plans: leave out noise, or"
            " add scripted"
        )
    if options.durations != NOISY:
        raise ExperimentError(
            f"durations {options.durations} is for virtual time: leave out engine, or durations"
        )
    cases = [
        (_names(name, load, seed, arm.text), arm, _beginning(trace, options))
        for name, traces in workloads(options, presets).items()
        for load in options.loads
        for seed, trace in zip(options.each_seed, traces, strict=True)
        for arm in arms
    ]
    total, done = sum(_asked(part, int(names["load"])) for names, _, part in cases), 0
    scored: list[Scored] = []
    engines = LiveEngines(options)
    serve_part = _scripted if options.scripted else _model_output
    try:
        for names, arm, part in cases:
            wanted = settings(options, int(names["load"]), int(names["seed"]))
            if isinstance(arm, PolicySpec):
                wanted = arm.settings(wanted)
            update = partial(_update, progress, done, total)
            run, virtual = serve_part(part, wanted, *engines.of(arm), update)
            done += _asked(part, wanted.load)
            scored.append(_scored(run, {**names, "engine": options.engine}))
            if isinstance(arm, PolicySpec):  # vLLM's schedulers do not run in virtual time
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


def _model_output(
    part: Trace,
    settings: SimulationSettings,
    engine: Engine,
    policy: Policy,
    update: ReportProgress,
) -> tuple[Run, Virtual]:
    """Serve a workload with the model's own plans; return the run and its replay."""
    known = shipped_skill_sets()
    used = {name: known[name] for name in {job.skill_set for job in part.jobs}}
    works = workload.asked(part, settings.load, SKIP)
    output = serve(works, used, engine, policy, settings, update, part.conversations)
    return output.run, partial(again, output, settings=settings)


def _scripted(
    part: Trace,
    settings: SimulationSettings,
    engine: Engine,
    policy: Policy,
    update: ReportProgress,
) -> tuple[Run, Virtual]:
    """Serve a workload with its own segments; return the run and its replay."""
    works = workload.works(
        part, settings.load, settings.seed, settings.prediction_error, settings.true_noise, SKIP,
        shipped_skill_sets(),
    )  # fmt: skip
    settings = fitted(settings, engine.capacity.max_model_len, longest(works))
    run = serve_scripted(works, engine, policy, settings, update, part.conversations)
    return run, lambda policy: simulate_works(works, policy, settings, part.conversations)


def _arms(options: RealTimeOptions) -> list[PolicySpec | StockSpec]:
    """Return the policies, and on vLLM its own schedulers too.

    Raises:
        ExperimentError: none is named, or one is not possible or named twice.
    """
    stock = {}
    if options.engine == "vllm":
        stock = {text: spec for text in options.policies if (spec := StockSpec.parse(text))}
    ours = tuple(text for text in options.policies if text not in stock)
    known = chosen(ours, options.harness, options.uncached) if ours or not stock else []
    if len(stock) + len(ours) != len(options.policies):
        raise ExperimentError("one of vLLM's schedulers is named twice")
    return [*stock.values(), *known]


def _update(progress: ReportProgress, before: int, total: int, ended: int, _: int) -> None:
    progress(before + ended, total)


def _names(workload: str, load: int, seed: int, policy: str) -> dict[str, Any]:
    return {"workload": workload, "policy": policy, "load": load, "seed": seed}


def _scored(run: Run, names: dict[str, RowValue]) -> Scored:
    scored = Scored.of(run, names)
    return replace(scored, row={**scored.row, "step_s": run.busy_s / max(run.steps, 1)})


def _setup(options: RealTimeOptions) -> dict[str, RowValue]:
    made: dict[str, RowValue] = {
        "engine": f"{options.engine} in real time, and simulated",
        "model": options.model_name,
        "options of vLLM's own": ", ".join(options.engine_args) or "none",
        "pace": "the engine's own" if options.own_pace else options.profile,
        "seconds of each workload": options.seconds,
        "first jobs that do not count": SKIP,
    }
    if options.scripted:
        usual = SimulationSettings()
        return made | {
            "words": "the workload's segments, in place of the model's tokens",
            "prompt tokens, shared and computed once": f"{usual.shared_tokens}, or as many as"
            " the engine takes",
            "prompt tokens computed for each request": f"{usual.own_tokens}, different for each",
        }
    return made | {
        "words": "the model's, constrained to the grammar",
        "execution times": "predictions for the generated plan, divided by the error",
        "prompt tokens, shared and computed once": "the prompt of the skill set",
        "prompt tokens computed for each request": "the text of the task",
    }


def _asked(part: Trace, load: int) -> int:
    """Return the number of requests."""
    return len(part.jobs) * load + len(part.conversations)


def _beginning(trace: Trace, options: RealTimeOptions) -> Trace:
    """Return the first `options.seconds` of a trace.

    Raises:
        ExperimentError: they have too few jobs, a job for an unknown skill set, or a conversation
            that no server admits.
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
                f"job {job.id!r} cannot run in real time: it needs a text and a skill set of"
                f" {', '.join(known)}"
            )
    for talk in talks:
        try:
            request_of(talk)
        except RequestError as error:
            raise ExperimentError(
                f"conversation {talk.id!r} cannot run in real time: {error}"
            ) from error
    return Trace(trace.name, trace.source, jobs, talks)


if TYPE_CHECKING:
    from timely_llm.engines.vllm.stock import StockEngine


class LiveEngines:
    """The engines of a run. Each is made at its first use.

    Args:
        options: the user's.

    Raises:
        EngineError: an option for vLLM is not `name=value`.
    """

    def __init__(self, options: RealTimeOptions) -> None:
        self._options = options
        self._model = options.model_path
        self._args = parse_engine_args(options.engine_args)
        self._pace = None if options.own_pace else options.profile
        self._max_model_len = MAX_MODEL_LEN if options.scripted else EngineLimits().max_model_len
        self._ours: Engine | None = None
        self._stock: dict[str, StockEngine] = {}

    def of(self, arm: PolicySpec | StockSpec) -> tuple[Engine, Policy]:
        """Return the engine of an arm, without requests, and a new policy.

        Raises:
            TimelyError: the engine cannot be made.
        """
        if isinstance(arm, PolicySpec):
            if self._ours is None:
                self._ours = make_engine(
                    self._options.engine, model=self._model, max_model_len=self._max_model_len,
                    pace=self._pace, engine_args=self._args,
                )  # fmt: skip
            return self._ours, arm.make()
        if arm.text not in self._stock:
            self._stock[arm.text] = arm.engine(self._model, self._args, self._max_model_len)
        stock = self._stock[arm.text]
        paced = PacedEngine(stock, step_time_profile(self._pace)) if self._pace else stock
        return paced, StockPolicy(stock)

    def close(self) -> None:
        """Close the engines."""
        for stock in self._stock.values():
            stock.close()
        if self._ours is not None:
            self._ours.close()


@dataclass(frozen=True)
class StockSpec:
    """One of vLLM's schedulers, in the notation of users: `vllm-priority:rows=8`.

    Attributes:
        text: the user's text.
        scheduling: vLLM's name of its policy.
        limits: limits of the engine; `rows` sets vLLM's `max_num_seqs`.
    """

    text: str
    scheduling: str
    limits: EngineLimits

    @classmethod
    def parse(cls, text: str) -> StockSpec | None:
        """Return the scheduler of a text; None if the text names none.

        Raises:
            ExperimentError: its option is not possible.
        """
        name, _, option = text.partition(":")
        if name not in STOCK:
            return None
        limits, rows = EngineLimits(), option.removeprefix(_ROWS)
        if option:
            possible = rows.isascii() and rows.isdecimal() and 1 <= int(rows[:9]) <= 1024
            if not (option.startswith(_ROWS) and possible):
                raise ExperimentError(f"{text}: {option!r} is not rows=1 to rows=1024")
            limits = replace(limits, max_rows=int(rows))
        return cls(text, name.removeprefix("vllm-"), limits)

    def engine(
        self,
        model: str | Path,
        engine_args: Mapping[str, Any] | None = None,
        max_model_len: int = EngineLimits().max_model_len,
    ) -> StockEngine:
        """Return a new engine.

        Args:
            model: folder, or id on the Hugging Face hub.
            engine_args: vLLM's own options.
            max_model_len: most tokens of one sequence.

        Raises:
            TimelyError: vLLM is missing, or the model cannot be run.
        """
        import_core()
        from timely_llm.engines.vllm.stock import StockEngine

        limits = replace(self.limits, max_model_len=max_model_len)
        return StockEngine(model, "float32", limits, self.scheduling, engine_args)


class StockPolicy:
    """Plans all generations in order of arrival; vLLM's scheduler decides.

    Args:
        engine: receives the priority of each generation.
    """

    whole_plans = True

    def __init__(self, engine: StockEngine) -> None:
        self._engine = engine

    def plan(
        self,
        now: float,
        generations: Collection[Generation],
        step_time: StepTime,
        capacity: Capacity,
    ) -> StepPlan:
        """Return all generations."""
        order = sorted(generations, key=attrgetter("arrival_s"))
        for generation in order:
            self._engine.priorities[generation.key] = 0 if _urgent(generation) else 1
        return StepPlan(tuple((g.key, max(g.to_compute, 1)) for g in order))


def _urgent(generation: Generation) -> bool:
    if isinstance(generation, PlanGeneration):
        return generation.request.time_utility.beta > NORMAL.beta
    return False
