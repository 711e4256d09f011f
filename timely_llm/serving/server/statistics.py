"""The statistics of a loop, by the names of the fields of ServerStats.msg."""

from __future__ import annotations

from collections import Counter
from typing import Any

from timely_llm.core.generation import State, StreamGeneration
from timely_llm.core.step import StageUse
from timely_llm.serving.loop import Loop
from timely_llm.serving.publisher import Stats


def statistics(loop: Loop, counts: Stats) -> dict[str, Any]:
    """Return a loop's state, and the counts and recent times of its events, by name."""
    states = Counter(g.state for g in loop.generations)
    return {
        "queued": states[State.QUEUED],
        "running": states[State.RUNNING],
        "suspended": states[State.SUSPENDED],
        "blocked": states[State.BLOCKED],
        "executing": states[State.EXECUTING],
        "requests": counts.requests,
        "ended": counts.ended,
        "failed": counts.failed,
        "expired": counts.expired,
        "silent": counts.silent,
        "replans": counts.replans,
        "segments": counts.segments,
        "steps": counts.steps,
        "prompt_tokens": counts.prompt_tokens,
        "generated_tokens": counts.generated_tokens,
        "recomputed_tokens": counts.recomputed_tokens,
        "loaded_tokens": counts.loaded_tokens,
        "evictions": counts.evictions,
        "step_time": counts.step_s,
        "predicted_step_time": loop.step_time.predict_s(rows=1),
        "response_p50": counts.response_s(50),
        "response_p95": counts.response_s(95),
        "utility": counts.utility,
        "free_kv_tokens": loop.free_kv_tokens,
        "duration_error": counts.duration_error,
        "duration_bias": counts.duration_bias,
        "streams": sum(isinstance(g, StreamGeneration) for g in loop.generations),
        "kept_conversations": loop.kept_conversations,
        "chunks": counts.chunks,
        "ttft_p50": counts.ttft_s(50),
        "ttft_p95": counts.ttft_s(95),
        "slo_met": counts.slo_met,
        "stalled": counts.stalled_s,
        "guessed_tokens": counts.guessed_tokens,
        "right_guesses": counts.right_guesses,
        "micro_batches": loop.steps_in_flight,
        "stages": [stage._asdict() for stage in _stages(loop, counts)],
    }


def _stages(loop: Loop, counts: Stats) -> list[StageUse]:
    """Return what each stage of the engine did; before the first step, all are idle."""
    stages = loop.capacity.stages
    if stages > 1 and not counts.steps:
        return [StageUse(0.0, 1.0, 0.0, 0.0)] * stages
    return counts.stages
