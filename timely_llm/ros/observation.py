"""What the server tells about itself: the list of requests and the flat stats."""

from __future__ import annotations

from collections import Counter

from builtin_interfaces.msg import Time

from timely_llm import msg, srv
from timely_llm.core.generation import Generation, PlanGeneration, State, StreamGeneration
from timely_llm.serving.loop import Loop


def list_requests(
    loop: Loop, now: float, response: srv.ListRequests.Response
) -> srv.ListRequests.Response:
    """Fill in the requests being served at `now`, in order of arrival."""
    generations = loop.generations
    response.request_ids = [g.request.request_id for g in generations]
    response.agents = [g.request.agent for g in generations]
    response.states = [g.state.value for g in generations]
    response.segments = [_delivered(g) for g in generations]
    response.due_in = [g.due_s - now for g in generations]
    return response


def _delivered(generation: Generation) -> int:
    """Return how many deliverables went out: segments, or tokens of an answer."""
    if isinstance(generation, PlanGeneration):
        return len(generation.segments)
    return len(generation.token_ids)


def stats(loop: Loop, stamp: Time) -> msg.ServerStats:
    """Return the loop's counts and recent times."""
    states = Counter(g.state for g in loop.generations)
    counts = loop.stats
    return msg.ServerStats(
        stamp=stamp,
        queued=states[State.QUEUED],
        running=states[State.RUNNING],
        suspended=states[State.SUSPENDED],
        blocked=states[State.BLOCKED],
        executing=states[State.EXECUTING],
        requests=counts.requests,
        ended=counts.ended,
        failed=counts.failed,
        expired=counts.expired,
        silent=counts.silent,
        replans=counts.replans,
        segments=counts.segments,
        steps=counts.steps,
        prompt_tokens=counts.prompt_tokens,
        generated_tokens=counts.generated_tokens,
        recomputed_tokens=counts.recomputed_tokens,
        loaded_tokens=counts.loaded_tokens,
        evictions=counts.evictions,
        step_time=counts.step_s,
        predicted_step_time=loop.step_time.predict_s(rows=1),
        response_p50=counts.response_s(50),
        response_p95=counts.response_s(95),
        utility=counts.utility,
        free_kv_tokens=loop.free_kv_tokens,
        duration_error=counts.duration_error,
        duration_bias=counts.duration_bias,
        streams=sum(isinstance(g, StreamGeneration) for g in loop.generations),
        kept_conversations=loop.kept_conversations,
        chunks=counts.chunks,
        ttft_p50=counts.ttft_s(50),
        ttft_p95=counts.ttft_s(95),
        slo_met=counts.slo_met,
        stalled=counts.stalled_s,
        guessed_tokens=counts.guessed_tokens,
        right_guesses=counts.right_guesses,
    )
