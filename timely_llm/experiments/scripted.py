"""A workload's own segments that a real engine makes in real time, whatever its model says.

The harness is that of virtual time, and so are prompts and words: only the engine is another one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import cast

from timely_llm.engines.contract import Engine
from timely_llm.engines.scripted import ScriptedEngine
from timely_llm.engines.tokenizer import HubTokenizer
from timely_llm.experiments import talkers, workload
from timely_llm.experiments.contract import ExperimentError
from timely_llm.experiments.outcome import Run
from timely_llm.experiments.simulation import (
    MAX_TOKENS,
    Settings,
    request_for,
    script,
    true_seconds,
)
from timely_llm.experiments.spoken import TraceClock
from timely_llm.experiments.stage import Progress, Stage
from timely_llm.experiments.workload import Work
from timely_llm.policies.contract import Policy
from timely_llm.serving.loop import Loop
from timely_llm.traces.model import Conversation

MAX_MODEL_LEN = 4096
"""Tokens that a sequence needs: a prompt of 2,884 as in paper 001, and the answer."""

_LEAST_SHARED_TOKENS = 64


def longest(works: Sequence[Work]) -> int:
    """Return the tokens of the longest answer, with the one that ends it."""
    return 1 + max((sum(part.tokens for part in work.parts) for work in works), default=0)


def fitted(settings: Settings, max_model_len: int, answer_tokens: int) -> Settings:
    """Return settings whose prompts are as long as in virtual time, or as an engine takes.

    Args:
        settings: what a run is like.
        max_model_len: most tokens of one sequence.
        answer_tokens: of the longest answer.

    Raises:
        ExperimentError: the engine takes no such prompt and answer at all.
    """
    most = max_model_len - settings.own_tokens - answer_tokens
    if most < _LEAST_SHARED_TOKENS:
        least = _LEAST_SHARED_TOKENS + settings.own_tokens
        raise ExperimentError(
            f"the workload has an answer of {answer_tokens} tokens after a prompt of at least"
            f" {least}: the engine takes {max_model_len}"
        )
    return replace(settings, shared_tokens=min(settings.shared_tokens, most))


def serve_scripted(
    works: Sequence[Work],
    engine: Engine,
    policy: Policy,
    settings: Settings,
    progress: Progress = lambda done, total: None,
    conversations: Sequence[Conversation] = (),
) -> Run:
    """Serve works whose segments are known, and conversations; takes as long as they do.

    Args:
        works: in order of arrival.
        engine: a real one, without requests; it is not closed.
        policy: a new one.
        settings: what the run is like.
        progress: called with requests ended and all requests.
        conversations: in order of arrival.

    Raises:
        SimulationError: requests are left that no policy serves.
    """
    clock = TraceClock()
    stage = Stage(clock, true_seconds, settings.network_s, settings.reports)
    said = script(works, conversations)
    vocabulary = len(cast(HubTokenizer, engine.tokenizer))
    scripted = ScriptedEngine(engine, vocabulary, said.__getitem__, workload.OneTask())
    loop = Loop(scripted, policy, stage, clock, settings.step_time(), None, settings.patience())
    skill_set = workload.skill_set(settings.shared_tokens)
    loop.register(skill_set)
    for work in works:
        task = workload.own_text(work, settings.own_tokens)
        stage.enter(work, request_for(work, skill_set.name, task, settings))
    for talk in conversations:
        stage.talk(talk, talkers.request_for(talk, MAX_TOKENS))
    clock.start(works, conversations)
    return stage.run(loop, clock.rest, progress)
