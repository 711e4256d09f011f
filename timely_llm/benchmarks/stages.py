"""Idle times of the stages of an engine, for each rule of micro-batches, on the same requests."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from timely_llm.core.clock import WallClock
from timely_llm.core.errors import EngineError
from timely_llm.core.events.schema import StepEvent
from timely_llm.core.step import StageUse, stage_uses
from timely_llm.engines.contract import Engine
from timely_llm.engines.wrappers import ScriptedEngine
from timely_llm.experiments.results.metrics import interval
from timely_llm.experiments.virtual import workload
from timely_llm.experiments.virtual.pipeline import Burst
from timely_llm.experiments.virtual.simulation import script
from timely_llm.experiments.virtual.stage import request_for
from timely_llm.policies.micro_batches.policy import Mode, in_micro_batches
from timely_llm.policies.pipeline_time import PipelineTime
from timely_llm.policies.registry import make_policy
from timely_llm.serving.loop import Loop


@dataclass(frozen=True)
class StagesRun:
    """One run of all requests.

    Attributes:
        seconds: from the first step to the last token.
        steps: micro-batches.
        uses: of each stage.
        compute_s, link_s: mean seconds of a step in a stage, and on a link.
    """

    seconds: float
    steps: int
    uses: list[StageUse]
    compute_s: float
    link_s: float


def rows(
    engine: Engine,
    vocabulary: int,
    modes: Sequence[Mode],
    burst: Burst,
    policy: str = "fcfs",
    repetitions: int = 5,
    progress: Callable[[float, float], None] = lambda done, total: None,
) -> list[dict[str, Any]]:
    """Serve the same requests by each rule in turn, so that other load affects all alike.

    A first run of each rule, in which it learns the times of the stages, is left out.

    Args:
        engine: an engine in stages that measures their times; it is not closed.
        vocabulary: tokens of its model's vocabulary.
        modes: rules of micro-batches.
        burst: the requests, which come at once. Answers have as many tokens as it says, of the
            engine's model, whatever that says.
        policy: plans the cycles.
        repetitions: runs of each rule.
        progress: called with the ended and the total number of runs.

    Returns:
        A row for each rule: steps, seconds, mean milliseconds of a step in a stage and on a link,
        and the idle share of each stage; ± is half the width of the 95 % confidence interval.

    Raises:
        EngineError: the engine has one stage, or its times were not measured.
    """
    stages = engine.capacity.stages
    if stages < 2:
        raise EngineError("the engine has one stage: this benchmark needs at least two")
    answers = script((), burst.trace().conversations)
    learned = {mode: PipelineTime.unknown(stages) for mode in modes}
    runs: dict[Mode, list[StagesRun]] = {mode: [] for mode in modes}
    for turn in range(1 + repetitions):
        for place, mode in enumerate(modes):
            scripted = ScriptedEngine(engine, vocabulary, answers.__getitem__, workload.OneTask())
            made = _run(scripted, mode, burst, policy, learned[mode])
            if turn:
                runs[mode].append(made)
            progress(turn * len(modes) + place + 1, (1 + repetitions) * len(modes))
    return [_row(mode, made) for mode, made in runs.items()]


def _row(mode: Mode, runs: Sequence[StagesRun]) -> dict[str, Any]:
    row: dict[str, Any] = {
        "micro_batching": mode.value,
        "steps": round(fmean(run.steps for run in runs)),
        "seconds": _interval([run.seconds for run in runs]),
        "compute_ms": fmean(run.compute_s for run in runs) * 1e3,
        "link_ms": fmean(run.link_s for run in runs) * 1e3,
    }
    for place in range(len(runs[0].uses)):
        row[f"idle_{place + 1}"] = _interval([run.uses[place].idle for run in runs])
    return row


def _interval(values: Sequence[float]) -> str:
    mean, half = interval(values)
    return f"{mean:.3f} ± {half:.3f}"


def _run(
    engine: Engine, mode: Mode, burst: Burst, policy: str, step_time: PipelineTime
) -> StagesRun:
    clock = WallClock()
    loop = Loop(engine, in_micro_batches(make_policy(policy), mode), clock, step_time)
    begin_s = clock.now()
    for talk in burst.trace().conversations:
        loop.admit(request_for(talk, burst.answer))
    steps: list[StepEvent] = []
    while loop.generations:
        steps += [event for event in loop.turn().events if isinstance(event, StepEvent)]
    seconds = clock.now() - begin_s
    loop.turn()  # frees what the last requests held
    times = [step.stages for step in steps if step.stages is not None]
    if not times:
        raise EngineError("the engine does not measure the times of its stages")
    return StagesRun(
        seconds,
        len(steps),
        stage_uses(times),
        fmean(fmean(one.stage_s) for one in times),
        fmean(fmean(one.link_s) for one in times),
    )
