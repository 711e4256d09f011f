"""How long a sketch may be: the levels of Zhan et al. 2025 (PICE), §IV-A2 and Eq. 2."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from timely_llm.core.errors import ConfigurationError

SecondsOf = Callable[[float], float]
"""Tokens -> seconds; it never falls."""


@dataclass(frozen=True)
class SketchTimes:
    """What Eq. 2 knows of the cloud, the link and the edges at one moment.

    The paper measures f offline, with nothing else in the cloud. With that f its own Table III
    admits no sketch for models of 7 billion parameters, so f is a function of the current load
    here: whatever the caller gives.

    Attributes:
        cloud_s: f: seconds in which the cloud makes an answer of some tokens at its current load.
        link_s: Delta: seconds in which a sketch of some tokens is transferred.
        edge_s: c * f: seconds in which an idle edge makes an answer of some tokens, in one row.
        queued_s: sum of c * f(l_j) over the jobs that wait for an edge, seconds.
        edges: N: edges that expand.
        parallel: p: rows in which an edge expands one answer.

    Raises:
        ConfigurationError: there is no edge or no row.
    """

    cloud_s: SecondsOf
    link_s: SecondsOf
    edge_s: SecondsOf
    queued_s: float = 0.0
    edges: int = 1
    parallel: int = 1

    def __post_init__(self) -> None:
        if self.edges < 1 or self.parallel < 1:
            raise ConfigurationError(
                f"sketches need at least one edge and one row, not {self.edges} and {self.parallel}"
            )

    def total_s(self, sketch_tokens: float, answer_tokens: float) -> float:
        """Return the seconds of sketch, transfer, waiting and expansion: the left side of Eq. 2.

        The paper's Eq. 2 leaves the p out below c * f(l_i), its text has it; with p = 1, its
        default, both are the same.
        """
        return (
            self.cloud_s(sketch_tokens)
            + self.link_s(sketch_tokens)
            + self.edge_s(answer_tokens) / self.parallel
            + self.queued_s / (self.parallel * self.edges)
        )

    def allow(self, sketch_tokens: float, answer_tokens: float) -> bool:
        """Return whether a sketch is no later than the cloud's own answer: Eq. 2."""
        return self.total_s(sketch_tokens, answer_tokens) <= self.cloud_s(answer_tokens)


@dataclass(frozen=True)
class SketchLevels:
    """The lengths from which that of a sketch is chosen. The paper names none of these numbers.

    Attributes:
        count: number of levels above 0; the last one is the whole answer.
        least_share: share of the answer's tokens that a sketch needs for the least capable edge
            model; Figure 3 has 200 of 500 tokens.
        capable_share: the same for the most capable one.
        margin_tokens: tokens by which a sketch may be longer than its level.

    Raises:
        ConfigurationError: there is no level, or a share is not from 0 to 1.
    """

    count: int = 5
    least_share: float = 0.4
    capable_share: float = 0.2
    margin_tokens: int = 10

    def __post_init__(self) -> None:
        if self.count < 1 or not 0.0 <= self.capable_share <= self.least_share <= 1.0:
            raise ConfigurationError(
                "count must be at least 1, least_share at most 1, and capable_share from 0 to"
                f" least_share, not {self.count}, {self.least_share} and {self.capable_share}"
            )

    def of(self, answer_tokens: float) -> tuple[int, ...]:
        """Return the levels above 0 for an answer's expected length, tokens, in rising order."""
        steps = range(1, self.count + 1)
        return tuple(math.ceil(step * answer_tokens / self.count) for step in steps)

    def choose(self, answer_tokens: float, times: SketchTimes, ability: float = 0.0) -> int:
        """Return the length of a sketch, tokens; 0: the cloud answers directly.

        It is the shortest level that is long enough for the edge's model, if Eq. 2 allows that:
        more capable models opt for shorter sketches, which raises the throughput.

        Args:
            answer_tokens: the expected length of the whole answer.
            times: of this moment.
            ability: of the edge's model, from 0 for the least capable one to 1.
        """
        share = self.least_share + ability * (self.capable_share - self.least_share)
        needed = math.floor(share * answer_tokens + 0.5)
        for level in self.of(answer_tokens):
            if level >= needed:
                fits = times.allow(level + self.margin_tokens, answer_tokens)
                return level if fits else 0
        return 0
