"""The same in real time: the serving loop, a real engine and model, simulated robots and people.

What the model says is then said again in virtual time, so that both can be compared.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from timely_llm.core.errors import RequestError
from timely_llm.engines.contract import Engine
from timely_llm.engines.paced import PacedEngine
from timely_llm.engines.profiles import step_time_profile
from timely_llm.engines.registry import make_engine
from timely_llm.experiments.contract import Experiment, ExperimentError, Options
from timely_llm.experiments.document import RunDocument, Value
from timely_llm.experiments.outcome import Run
from timely_llm.experiments.policy_spec import PolicySpec, chosen
from timely_llm.experiments.recorded import LIVE_DEFINITIONS
from timely_llm.experiments.sources import shipped_skill_sets
from timely_llm.experiments.spoken import again, serve
from timely_llm.experiments.stage import Progress
from timely_llm.experiments.stock import StockPolicy, StockSpec
from timely_llm.experiments.sweep import MEASURES, Scored, document, settings, workloads
from timely_llm.experiments.workload import asked
from timely_llm.policies.contract import Policy
from timely_llm.resources import resource
from timely_llm.traces.lines import in_order
from timely_llm.traces.model import Trace
from timely_llm.traces.streams import request_of

if TYPE_CHECKING:
    from timely_llm.engines.vllm_stock_engine import StockEngine

SKIP = 5
"""First jobs that do not count: runs are short."""
KEYS = ("workload", "load", "policy", "engine")
NOTES = (
    "A real step is never shorter than the profile says. It is longer when this machine is slow,"
    " and between two steps there is the loop's own time: both are missing in virtual time.",
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

    The real engine's steps take as long as the profile says, or longer if this machine is slow.
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
    if options.noise or any(isinstance(a, PolicySpec) and "uncached" in a.words for a in arms):
        raise ExperimentError(
            "in real time prompts are always cached, and times are those of the plans that are"
            " made: leave out uncached and noise"
        )
    cases = [
        (_names(name, load, seed, arm.text), arm, _beginning(trace, options.seconds))
        for name, traces in workloads(options, presets).items()
        for load in options.loads
        for seed, trace in enumerate(traces)
        for arm in arms
    ]
    total, done = sum(_asked(part, int(names["load"])) for names, _, part in cases), 0
    scored: list[Scored] = []
    skill_sets = shipped_skill_sets()
    stage = _Engines(options)
    try:
        for names, arm, part in cases:
            load = int(names["load"])
            wanted = settings(options, load, int(names["seed"]))
            if isinstance(arm, PolicySpec):
                wanted = arm.settings(wanted)
            used = {name: skill_sets[name] for name in {job.skill_set for job in part.jobs}}
            tell = partial(_tell, progress, done, total)
            works = asked(part, load, SKIP)
            engine, policy = stage.of(arm)
            spoken = serve(works, used, engine, policy, wanted, tell, part.conversations)
            done += _asked(part, load)
            scored.append(_scored(spoken.run, {**names, "engine": options.engine}))
            if isinstance(arm, PolicySpec):  # vLLM's schedulers are not there in virtual time
                virtual = again(spoken, arm.make(), wanted)
                scored.append(_scored(virtual, {**names, "engine": "simulated"}))
    finally:
        stage.close()
    made = document(
        experiment, options, scored, keys=KEYS, measures=(*MEASURES, "step_s"),
        definitions=DEFINITIONS,
        notes=(*NOTES, STOCK_NOTE) if any(isinstance(a, StockSpec) for a in arms) else NOTES,
    )  # fmt: skip
    return made.model_copy(update={"setup": {**made.setup, **_setup(options)}})


class _Engines:
    """The engines of a run, each made when it is needed first."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._ours: Engine | None = None
        self._stock: dict[str, StockEngine] = {}

    def of(self, arm: PolicySpec | StockSpec) -> tuple[Engine, Policy]:
        """Return the engine that an arm runs on, without requests, and a new policy.

        Raises:
            TimelyError: the engine cannot be had.
        """
        model, pace = resource("models/tiny_planner"), self._options.profile
        if isinstance(arm, PolicySpec):
            if self._ours is None:
                self._ours = make_engine(self._options.engine, model=model, pace=pace)
            return self._ours, arm.make()
        if arm.text not in self._stock:
            self._stock[arm.text] = arm.engine(model)
        stock = self._stock[arm.text]
        return PacedEngine(stock, step_time_profile(pace)), StockPolicy(stock)

    def close(self) -> None:
        """Free them."""
        for stock in self._stock.values():
            stock.close()
        if self._ours is not None:
            self._ours.close()


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
    return {
        "engine": f"{options.engine} in real time with the embedded model, and simulated",
        "seconds of each workload": options.seconds,
        "first jobs that do not count": SKIP,
        "execution times": "as predicted of the plan that was made, over the error",
        "prompt tokens, shared and computed once": "those of the skill set",
        "prompt tokens computed for each request": "those of the task",
    }


def _asked(part: Trace, load: int) -> int:
    """Return how many requests are asked."""
    return len(part.jobs) * load + len(part.conversations)


def _beginning(trace: Trace, seconds: float) -> Trace:
    """Return what is asked in the first seconds of a trace.

    Raises:
        ExperimentError: too little, or of a robot that the package does not know, or of a person
            whom no server takes.
    """
    first_s = in_order(trace)[0].arrival_s
    jobs = tuple(job for job in trace.jobs if job.arrival_s < first_s + seconds)
    talks = tuple(talk for talk in trace.conversations if talk.arrival_s < first_s + seconds)
    if trace.jobs and len(jobs) <= SKIP:
        raise ExperimentError(
            f"the first {seconds:g} s of {trace.name} have {len(jobs)} jobs, and the first {SKIP}"
            " do not count: ask for more seconds"
        )
    known = shipped_skill_sets()
    for job in jobs:
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
