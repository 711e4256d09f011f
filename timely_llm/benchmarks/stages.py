"""Idle times of the stages of an engine, for each rule of micro-batches, on the same requests."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from timely_llm.core.clock import WallClock
from timely_llm.core.errors import EngineError
from timely_llm.core.events.schema import StepEvent
from timely_llm.core.request import ChatMessage, StreamRequest
from timely_llm.core.step import stage_uses
from timely_llm.engines.contract import Engine
from timely_llm.engines.simulated import ScriptTokenizer
from timely_llm.engines.wrappers import ScriptedEngine
from timely_llm.policies.micro_batches.policy import Mode, in_micro_batches
from timely_llm.policies.pipeline_time import PipelineTime
from timely_llm.policies.registry import make_policy
from timely_llm.serving.loop import Loop

STOCK = "stock"
"""Name of stock vLLM's own scheduler beside the rules of micro-batches."""
_SYMBOL = 0x2200
"""The first of many characters that are a token each."""


@dataclass(frozen=True)
class AlikeRequests:
    """Requests of one length that come at once.

    Attributes:
        number: how many.
        prompt: tokens of each prompt, without those of the chat's form.
        answer: tokens of each answer, whatever the model says.
    """

    number: int
    prompt: int
    answer: int

    def made(self) -> list[StreamRequest]:
        """Return the requests; no prompt is like another, so that a prefix cache finds none."""
        prompts = [chr(_SYMBOL + place) * self.prompt for place in range(self.number)]
        return [
            StreamRequest(
                f"r{place}", f"r{place}", (ChatMessage("user", text),), max_tokens=self.answer
            )
            for place, text in enumerate(prompts)
        ]


def rows(
    engine: Engine,
    vocabulary: int,
    modes: Sequence[Mode],
    requests: AlikeRequests,
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
        requests: what is served.
        policy: plans the cycles.
        repetitions: runs of each rule.
        progress: called with the ended and the total number of runs.

    Returns:
        A row for each rule and repetition (`seed`): steps, seconds of the run, mean milliseconds of
        a step in a stage and on a link, and the idle share of each stage. `seconds_ratio` and
        `idle_more` compare with the first rule's run of the same repetition: the seconds over its
        seconds, and the idle share of all stages less its share.

    Raises:
        EngineError: the engine has one stage, or its times were not measured.
    """
    stages = engine.capacity.stages
    if stages < 2:
        raise EngineError("the engine has one stage: this benchmark needs at least two")
    scripted = _scripted(engine, vocabulary, requests)

    def serving(mode: Mode) -> Callable[[], Loop]:
        learned = PipelineTime.unknown(stages)
        return lambda: Loop(
            scripted, in_micro_batches(make_policy(policy), mode), WallClock(), learned
        )

    return _in_turns({mode.value: serving(mode) for mode in modes}, requests, repetitions, progress)


def stock_rows(
    engine: Engine,
    vocabulary: int,
    requests: AlikeRequests,
    repetitions: int = 5,
    progress: Callable[[float, float], None] = lambda done, total: None,
    forget: Callable[[], None] = lambda: None,
) -> list[dict[str, Any]]:
    """Serve the same requests by the scheduler of stock vLLM; see `rows`.

    Args:
        engine: stock vLLM in stages.
        vocabulary: tokens of its model's vocabulary.
        requests: what is served.
        repetitions: runs that count.
        progress: called with the ended and the total number of runs.
        forget: empties the engine's prefix cache. The rules of `rows` find no prompt of an earlier
            run either.

    Raises:
        EngineError: the times of the stages were not measured.
    """
    scripted = _scripted(engine, vocabulary, requests)

    def serving() -> Loop:
        forget()
        return Loop(scripted, make_policy("stream"), WallClock())

    return _in_turns({STOCK: serving}, requests, repetitions, progress)


def _scripted(engine: Engine, vocabulary: int, requests: AlikeRequests) -> ScriptedEngine:
    """Return an engine with answers of the wanted length."""
    words = ["so "] * requests.answer
    return ScriptedEngine(engine, vocabulary, lambda key: words, ScriptTokenizer())


def _in_turns(
    serving: Mapping[str, Callable[[], Loop]],
    requests: AlikeRequests,
    repetitions: int,
    progress: Callable[[float, float], None],
) -> list[dict[str, Any]]:
    """Return the rows of `rows` for loops by name; each is made anew for each run."""
    found = []
    for turn in range(1 + repetitions):
        first: dict[str, float] = {}
        for place, (name, loop) in enumerate(serving.items()):
            ran = _run(loop(), requests)
            first = first or ran
            if turn:
                found.append({"micro_batching": name, "seed": turn, **_beside(ran, first)})
            progress(turn * len(serving) + place + 1, (1 + repetitions) * len(serving))
    return found


def _beside(ran: dict[str, float], first: dict[str, float]) -> dict[str, float]:
    """Return what a run took, and how it compares with the first rule's."""
    idle = [name for name in ran if name.startswith("idle_")]
    return {
        **ran,
        "seconds_ratio": ran["seconds"] / first["seconds"],
        "idle_more": fmean(ran[name] - first[name] for name in idle),
    }


def _run(loop: Loop, requests: AlikeRequests) -> dict[str, float]:
    """Serve all requests; return what their steps took."""
    clock = WallClock()
    begin_s = clock.now()
    for request in requests.made():
        loop.admit(request)
    steps: list[StepEvent] = []
    while loop.generations:
        steps += [event for event in loop.turn().events if isinstance(event, StepEvent)]
    seconds = clock.now() - begin_s
    loop.turn()  # frees what the last requests held
    times = [step.stages for step in steps if step.stages is not None]
    if not times:
        raise EngineError("the engine does not measure the times of its stages")
    idle = {f"idle_{place}": use.idle for place, use in enumerate(stage_uses(times), 1)}
    return {
        "steps": len(steps),
        "seconds": seconds,
        "compute_ms": fmean(fmean(one.stage_s) for one in times) * 1e3,
        "link_ms": fmean(fmean(one.link_s) for one in times) * 1e3,
        **idle,
    }
