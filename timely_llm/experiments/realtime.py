"""The same in real time: the serving loop, a real engine and a real model, simulated robots.

What the model says is then said again in virtual time, so that both can be compared.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from statistics import fmean
from typing import Any

import numpy as np

from timely_llm.core.clock import WallClock
from timely_llm.core.segment import Segment
from timely_llm.engines.contract import Engine
from timely_llm.engines.registry import make_engine
from timely_llm.experiments.contract import Experiment, ExperimentError, Options
from timely_llm.experiments.document import RunDocument, Value
from timely_llm.experiments.outcome import Run
from timely_llm.experiments.policy_spec import chosen
from timely_llm.experiments.simulation import Settings, request_for, simulate_works
from timely_llm.experiments.sources import shipped_skill_sets
from timely_llm.experiments.stage import Progress, Robot, Stage
from timely_llm.experiments.sweep import MEASURES, Scored, document, settings, workloads
from timely_llm.experiments.workload import INSTANT_S, Part, Work, asked
from timely_llm.policies.contract import Policy
from timely_llm.resources import resource
from timely_llm.serving.admission import AdmissionLimits
from timely_llm.serving.loop import Loop
from timely_llm.skills.skill_set import SkillSet
from timely_llm.traces.model import Trace

SKIP = 5
"""First jobs that do not count: runs are short."""
MAX_TOKENS = 128
KEYS = ("workload", "load", "policy", "engine")
NOTES = (
    "A real step is never shorter than the profile says. It is longer when this machine is slow,"
    " and between two steps there is the loop's own time: both are missing in virtual time.",
)
DEFINITIONS = {
    "engine": "the real one in real time, or simulated in virtual time, saying the same words",
    "step_s": "mean seconds from one step of the engine to the next while it works",
}
_HEAD_START_S = 0.5


@dataclass(frozen=True)
class Spoken:
    """What a model said to a workload.

    Attributes:
        run: what robots got; the works' parts are what the model said.
        shared_tokens, own_tokens: of the prompts, on average.
    """

    run: Run
    shared_tokens: int
    own_tokens: int


class _TraceClock:
    """The wall's clock, on a trace's time."""

    def __init__(self) -> None:
        self._wall = WallClock()
        self.start(0.0)

    def start(self, now_s: float) -> None:
        """Show `now_s` now, and go on from there."""
        self._origin_s = self._wall.now() - now_s

    def now(self) -> float:
        """Return the trace's time in seconds."""
        return self._wall.now() - self._origin_s

    def rest(self, until_s: float) -> None:
        """Sleep until a moment."""
        time.sleep(max(until_s - self.now(), 0.0))


class _Notes:
    """What segments were made of, and how long robots take for them."""

    def __init__(self, engine: Engine, rng: np.random.Generator, error: float) -> None:
        self._encode = engine.tokenizer.encode
        self._rng = rng
        self._error = error
        self.parts: dict[str, list[Part]] = {}

    def told(self, work: Work) -> Work:
        """Return a work with the parts that the model made of it."""
        return replace(work, parts=tuple(self.parts.get(work.id, ())))

    def seconds(self, robot: Robot, segment: Segment) -> float:
        """Return the true seconds of a segment, of which the predicted ones are off."""
        predicted_s = max(segment.predicted_s, INSTANT_S)
        error = self._rng.lognormal(0.0, self._error) if self._error else 1.0
        true_s = predicted_s / error if segment.calls else INSTANT_S
        part = Part(len(self._encode(segment.text)), true_s, predicted_s)
        self.parts.setdefault(robot.work.id, []).append(part)
        return true_s


def serve(
    works: Sequence[Work],
    skill_sets: dict[str, SkillSet],
    engine: Engine,
    policy: Policy,
    settings: Settings,
    progress: Progress = lambda done, total: None,
) -> Spoken:
    """Serve works in real time; takes as long as they do.

    Plans are constrained to the grammar of their skill set, so that all of them can be executed.

    Args:
        works: in order of arrival; what their parts are does not matter.
        skill_sets: theirs, by name.
        engine: a real one, without requests; it is not closed.
        policy: a new one.
        settings: what the run is like.
        progress: called with requests ended and all requests.

    Raises:
        SimulationError: requests are left that no policy serves.
    """
    clock = _TraceClock()
    rng = np.random.default_rng(settings.seed)
    notes = _Notes(engine, rng, settings.prediction_error)
    stage = Stage(clock, notes.seconds, settings.network_s, settings.reports)
    loop = Loop(
        engine, policy, stage, clock, settings.step_time(), None, settings.patience(),
        AdmissionLimits(constrained=True),
    )  # fmt: skip
    shared = {name: loop.register(made) for name, made in skill_sets.items()}
    clock.start(works[0].arrival_s - _HEAD_START_S)
    for work in works:
        request = request_for(work, work.job.skill_set, work.job.text, settings)
        stage.enter(work, replace(request, max_tokens=MAX_TOKENS))
    run = stage.run(loop, clock.rest, progress)
    outcomes = tuple(replace(outcome, work=notes.told(outcome.work)) for outcome in run.outcomes)
    shared_tokens = round(fmean(shared.values()))
    prompts = loop.stats.prompt_tokens / len(works)
    return Spoken(replace(run, outcomes=outcomes), shared_tokens, round(prompts) - shared_tokens)


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
    specs = chosen(options)
    if options.noise or any("uncached" in spec.words for spec in specs):
        raise ExperimentError(
            "in real time prompts are always cached, and times are those of the plans that are"
            " made: leave out uncached and noise"
        )
    cases = [
        (_names(name, load, seed, spec.text), spec, _works(trace, load, options.seconds))
        for name, traces in workloads(options, presets).items()
        for load in options.loads
        for seed, trace in enumerate(traces)
        for spec in specs
    ]
    total, done = sum(len(works) for _, _, works in cases), 0
    scored: list[Scored] = []
    skill_sets = shipped_skill_sets()
    engine = make_engine(
        options.engine, model=resource("models/tiny_planner"), pace=options.profile
    )
    try:
        for names, spec, works in cases:
            wanted = spec.settings(settings(options, int(names["load"]), int(names["seed"])))
            used = {name: skill_sets[name] for name in {work.job.skill_set for work in works}}
            tell = partial(_tell, progress, done, total)
            spoken = serve(works, used, engine, spec.make(), wanted, tell)
            done += len(works)
            runs = ((options.engine, spoken.run), ("simulated", again(spoken, spec.make(), wanted)))
            scored += [_scored(run, {**names, "engine": made}) for made, run in runs]
    finally:
        engine.close()
    made = document(
        experiment, options, scored, keys=KEYS, measures=(*MEASURES, "step_s"),
        definitions=DEFINITIONS, notes=NOTES,
    )  # fmt: skip
    return made.model_copy(update={"setup": {**made.setup, **_setup(options)}})


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


def _works(trace: Trace, load: int, seconds: float) -> list[Work]:
    """Return what is asked in the first seconds of a trace.

    Raises:
        ExperimentError: too little, or of a robot that the package does not know.
    """
    jobs = [job for job in trace.jobs if job.arrival_s < trace.jobs[0].arrival_s + seconds]
    if len(jobs) <= SKIP:
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
    return asked(Trace(trace.name, trace.source, tuple(jobs)), load, SKIP)


def again(spoken: Spoken, policy: Policy, settings: Settings) -> Run:
    """Return the same in virtual time: the same words, times of execution and predictions."""
    heard = [outcome.work for outcome in spoken.run.outcomes if outcome.work.parts]
    virtual = replace(
        settings, shared_tokens=spoken.shared_tokens, own_tokens=max(spoken.own_tokens, 1)
    )
    return simulate_works(heard, policy, virtual)
