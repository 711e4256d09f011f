"""What a serving loop says of itself to a dispatcher, and what several say as one server."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from statistics import fmean

from timely_llm.core.generation import Generation, PlanGeneration, State, StreamGeneration
from timely_llm.dispatch.contract import KAPPA, MOST, MOST_DUE, SHORTEST_S, Due, ServerView
from timely_llm.policies.lengths import SegmentLengths
from timely_llm.serving.loop import Loop
from timely_llm.serving.pool import has_begun

ROWS = 32
"""Rows up to which a view has the seconds of each step."""

FIRST_GUESS = 8
"""Tokens of a segment, until some of its class were seen."""


class Load:
    """Makes the views of one loop. It learns the lengths of segments from view to view.

    Args:
        loop: a new loop, without requests; the view is made in its thread, between two turns.
        name: name of the server.
    """

    def __init__(self, loop: Loop, name: str) -> None:
        self._loop = loop
        self._name = name
        self._kv_tokens = loop.free_kv_tokens
        self._lengths = SegmentLengths(FIRST_GUESS)

    def view(self, now: float) -> ServerView:
        """Return the server's view of itself at `now`, seconds of the loop's clock."""
        loop = self._loop
        served = loop.generations
        self._lengths.watch([one for one in served if isinstance(one, PlanGeneration)])
        context = sum(one.context_tokens for one in served) // max(len(served), 1)
        capacity, step_time = loop.capacity, loop.step_time
        rows = range(1, min(ROWS, capacity.max_rows) + 1)
        due = sorted(self._due(served, now), key=_due_in)[:MOST_DUE]
        return ServerView(
            self._name,
            tuple(step_time.predict_s(row, 0, row * context) for row in rows),
            step_time.predict_s(ROWS + 1, 0, (ROWS + 1) * context)
            - step_time.predict_s(ROWS, 0, ROWS * context),
            step_time.coefficients[2],
            self._kv_tokens,
            loop.free_kv_tokens,
            capacity.max_rows,
            {one.skill_set.name: len(one.prefix.token_ids) for one in loop.prompts.all},
            loop.kept_tokens,
            tuple(_rates(served)),
            tuple(due),
            len(served),
            frozenset(one.key for one in served if not has_begun(one)),
            served=tuple(one.key for one in served),
        )

    def _due(self, served: list[Generation], now: float) -> Iterator[Due]:
        """Yield what is due next of each plan and stream that needs the engine."""
        for one in served:
            prompt = one.to_compute if one.to_compute > 1 else 0
            if isinstance(one, PlanGeneration):
                if one.given or one.state in (State.BLOCKED, State.EXECUTING):
                    continue
                utility = one.time_utility
                grace_s = 1.0 / KAPPA
                if one.first:
                    grace_s = min(max(utility.grace_s, SHORTEST_S), grace_s)
                tokens = self._lengths.to_go(one).mean
                weight = min(utility.beta, MOST)
                yield Due(_bounded(one.due_s - now), tokens, weight, grace_s, prompt)
            elif isinstance(one, StreamGeneration) and one.first:
                slo = one.request.slo
                grace_s = SHORTEST_S if slo.real_time else slo.ttft_s
                yield Due(one.due_s - now, 1.0, one.request.weight, grace_s, prompt)


def _rates(served: list[Generation]) -> Iterator[float]:
    for one in served:
        if isinstance(one, StreamGeneration):
            yield min(one.request.slo.rate, MOST)


def _bounded(seconds: float) -> float:
    return min(max(seconds, -MOST), MOST)


def _due_in(due: Due) -> float:
    return due.due_in_s


def joint_view(name: str, views: Sequence[ServerView]) -> ServerView:
    """Return the view of replicas that share the work evenly.

    A step of all replicas has their rows together: each computes a part of them, in the time of a
    step of its own.

    Args:
        name: of the server.
        views: those of the replicas, at least one.
    """
    count = len(views)
    rows = range(1, min(ROWS, sum(one.max_rows for one in views)) + 1)
    due = sorted((due for one in views for due in one.due), key=_due_in)
    return replace(
        views[0],
        name=name,
        steps_s=tuple(fmean(one.step_s(-(-row // count)) for one in views) for row in rows),
        row_s=fmean(one.row_s for one in views) / count,
        prefill_token_s=fmean(one.prefill_token_s for one in views) / count,
        kv_tokens=sum(one.kv_tokens for one in views),
        free_kv_tokens=sum(one.free_kv_tokens for one in views),
        max_rows=sum(one.max_rows for one in views),
        skill_sets={key: tokens for one in views for key, tokens in one.skill_sets.items()},
        kept={key: tokens for one in views for key, tokens in one.kept.items()},
        rates=tuple(rate for one in views for rate in one.rates),
        due=tuple(due[:MOST_DUE]),
    )
