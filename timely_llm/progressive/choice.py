"""Which small model and which edge expand a sketch: Zhan et al. 2025 (PICE), Algorithm 2."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol

from timely_llm.progressive.lengths import SecondsOf

MOST_QUEUED = 4
"""Waiting jobs from which on no larger model is taken: as many as edges (Figure 13)."""


class SmallModel(NamedTuple):
    """A model that an edge may run.

    Attributes:
        name: unique among the models.
        seconds: remaining processing time of a job with an expected answer of some tokens.
    """

    name: str
    seconds: SecondsOf


def choose_model(
    models: Sequence[SmallModel],
    current: int,
    answer_tokens: float,
    budget_s: float,
    queued: int,
    most_queued: int = MOST_QUEUED,
) -> int:
    """Return the place of the model that an edge takes for a job: Algorithm 2.

    Line 4 does not say which smaller model: it is the largest one in time here, and the smallest
    one if none is.

    Args:
        models: from the smallest to the largest.
        current: place of the model that the edge runs.
        answer_tokens: l_i, expected tokens of the whole answer.
        budget_s: f(l_i) - f(|r_i|): what is left of the cloud's own time, seconds.
        queued: jobs that wait for an edge.
        most_queued: the maximum of line 6.
    """
    if models[current].seconds(answer_tokens) > budget_s:
        for place in reversed(range(current)):
            if models[place].seconds(answer_tokens) <= budget_s:
                return place
        return 0
    if queued < most_queued:
        for place in range(current + 1, len(models)):
            if models[place].seconds(answer_tokens) < budget_s:
                return place
    return current


class EdgeView(Protocol):
    """What an edge says of itself; `timely_llm.dispatch.contract.ServerView` is one."""

    @property
    def name(self) -> str:
        """Name of the edge, unique."""
        ...

    @property
    def prefill_token_s(self) -> float:
        """Seconds of a prompt token."""
        ...

    @property
    def requests(self) -> int:
        """Requests that it serves, a row each."""
        ...

    @property
    def max_rows(self) -> int:
        """Most rows of a step."""
        ...

    @property
    def rtt_s(self) -> float:
        """Seconds of a message there and back."""
        ...

    @property
    def active(self) -> bool:
        """Whether it takes requests."""
        ...

    def step_s(self, rows: int) -> float:
        """Return the seconds of a step of some rows, from 1 on."""
        ...


def expansion_s(edge: EdgeView, prompt_tokens: float, tokens: Sequence[float]) -> float:
    """Return the predicted seconds of an expansion at an edge, beside what the edge serves.

    The rows that it serves stay; rows beyond the most of a step take their turns.

    Args:
        edge: the edge.
        prompt_tokens: of each row's prompt that the edge has no KV of.
        tokens: of each row, at least one.
    """
    rows = edge.requests + len(tokens)
    turns = rows / min(rows, edge.max_rows)
    step_s = edge.step_s(min(rows, edge.max_rows))
    prompts_s = edge.prefill_token_s * prompt_tokens * len(tokens)
    return edge.rtt_s + prompts_s + turns * step_s * max(tokens)


def nearest_edge(
    edges: Iterable[EdgeView], prompt_tokens: float, tokens: Sequence[float]
) -> tuple[str, float]:
    """Return the edge with the least predicted time for an expansion, and its seconds.

    Without an edge that takes requests it is ("", infinity).
    """
    found = ("", math.inf)
    for edge in edges:
        if edge.active and (seconds := expansion_s(edge, prompt_tokens, tokens)) < found[1]:
            found = (edge.name, seconds)
    return found
