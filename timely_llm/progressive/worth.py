"""How a request is answered: by the way with the largest expected worth, less the cloud's price."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from statistics import fmean
from typing import NamedTuple

from timely_llm.progressive.lengths import SecondsOf

RECENT = 64
"""Number of the last answers of a kind from which the length of the next one is expected."""

FIRST_TOKENS = 500.0
"""Tokens of an answer until one of any kind has come."""


class Way(NamedTuple):
    """A way to answer a request: the cloud alone, an edge alone, or a sketch and an edge.

    Attributes:
        name: unique among the ways.
        quality: worth of such an answer at once, 1 for the cloud's own.
        seconds: from now to the end of an answer of some tokens.
        cloud_tokens: tokens that the cloud makes for an answer of some tokens.
    """

    name: str
    quality: float
    seconds: SecondsOf
    cloud_tokens: Callable[[float], float]


def best_way(
    ways: Iterable[Way],
    lengths: Sequence[float],
    utility: Callable[[float], float],
    token_price: float,
) -> Way:
    """Return the way with the largest mean worth over the lengths, of equal ones the first.

    The mean is over the learned lengths, not the worth of the mean length: a cloud that
    underestimates a length does not change the choice.

    Args:
        ways: at least one.
        lengths: of answers to requests of this kind, tokens; at least one.
        utility: share of the quality that is left after some seconds.
        token_price: worth that a token of the cloud costs.
    """

    def worth(way: Way) -> float:
        return fmean(
            way.quality * utility(way.seconds(tokens)) - token_price * way.cloud_tokens(tokens)
            for tokens in lengths
        )

    return max(ways, key=worth)


class KindLengths:
    """Learns how long answers are, by the kind of their requests.

    Args:
        first: tokens of an answer until one of any kind has come.
    """

    def __init__(self, first: float = FIRST_TOKENS) -> None:
        self._first = first
        self._all: deque[float] = deque(maxlen=RECENT)
        self._of: dict[str, deque[float]] = {}

    def learn(self, kind: str, tokens: float) -> None:
        """Take the length of an answer that has ended."""
        self._all.append(tokens)
        self._of.setdefault(kind, deque(maxlen=RECENT)).append(tokens)

    def known(self, kind: str) -> list[float]:
        """Return the last lengths of a kind; those of all kinds until one of it has come."""
        return list(self._of.get(kind) or self._all) or [self._first]

    def mean(self, kind: str) -> float:
        """Return the mean of the last lengths of a kind, tokens."""
        return fmean(self.known(kind))
