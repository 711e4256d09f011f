"""What an order of whole requests is worth (Huang et al. 2025, §3.1)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from timely_llm.core.errors import ConfigurationError
from timely_llm.policies.annealing.latency import LatencyPredictor

Order = tuple[tuple[int, ...], ...]
"""Batches in the order in which they run, each with the places of its requests in the problem."""


@dataclass(frozen=True)
class SizedRequest:
    """A waiting request with predicted lengths and its service level (Eq. 5 to 7).

    A request for which the whole answer counts has a finite `e2e_s`, a chat finite `ttft_s` and
    `tpot_s`. Infinite limits are always met.

    Attributes:
        input_tokens, output_tokens: tokens of the prompt, and predicted ones of the answer.
        e2e_s: limit of the time to the whole answer, seconds.
        ttft_s: limit of the time to the first token, seconds.
        tpot_s: limit of the mean time of a token, seconds.
        waited_s: time since its arrival, seconds.
        worth: worth of a met service level, relative to others.
    """

    input_tokens: int
    output_tokens: int
    e2e_s: float = math.inf
    ttft_s: float = math.inf
    tpot_s: float = math.inf
    waited_s: float = 0.0
    worth: float = 1.0


class OrderOutcome(NamedTuple):
    """Sums over all requests of an order, each request weighted by its worth.

    Attributes:
        met: n, requests that meet their service level (Eq. 6).
        latency_s: t, seconds from arrival to the whole answer (Eq. 3).
    """

    met: float
    latency_s: float

    @property
    def g(self) -> float:
        """G: n over t (Eq. 2)."""
        return self.met / self.latency_s


class OrderProblem:
    """Which order of some requests is best, if batches run one after another (Eq. 10 to 13).

    A batch runs until its longest request ends (Eq. 11). The paper prints the condition of a
    wait as `a_i <= 1`; it is read as `a_i >= 1`, since the first batch waits for none.

    Args:
        exec_s: for each batch size from 1 on, the seconds of each request in such a batch.
        slack_s: the same, of the longest wait with which the request meets its service level;
            negative infinity: it cannot.
        price: price of a second of latency, as a share of a request's worth; None: the order with
            the highest G is best.
        worth: worth of each request; empty: 1 each.
        waited_s: seconds that each request has waited before; empty: none.

    Raises:
        ConfigurationError: the tables are empty or differ in size, an execution takes no time, a
            request is worth nothing, or the price is negative or not finite.
    """

    def __init__(
        self,
        exec_s: Sequence[Sequence[float]],
        slack_s: Sequence[Sequence[float]],
        price: float | None = None,
        worth: Sequence[float] = (),
        waited_s: Sequence[float] = (),
    ) -> None:
        self.exec_s, self.slack_s = exec_s, slack_s
        self.max_batch = len(exec_s)
        self.count = len(exec_s[0]) if exec_s else 0
        self.price = price
        self.worth = tuple(worth) or (1.0,) * self.count
        waited = tuple(waited_s) or (0.0,) * self.count
        lengths = {len(row) for table in (exec_s, slack_s) for row in table}
        if len(slack_s) != self.max_batch or not self.count or lengths != {self.count}:
            raise ConfigurationError("exec_s and slack_s need a row of equal length for each size")
        if len(self.worth) != self.count or len(waited) != self.count:
            raise ConfigurationError(f"worth and waited_s need {self.count} values each")
        if not min(min(row) for row in exec_s) > 0.0:
            raise ConfigurationError("the seconds of an execution must be above 0")
        if not min(self.worth) > 0.0:
            raise ConfigurationError("the worth of a request must be above 0")
        if price is not None and not 0.0 <= price < math.inf:
            raise ConfigurationError(f"price must be finite and from 0 on, not {price:g}")
        self.waited_s = math.fsum(w * s for w, s in zip(self.worth, waited, strict=True))

    @classmethod
    def of(
        cls,
        requests: Iterable[SizedRequest],
        predictor: LatencyPredictor,
        max_batch: int,
        price: float | None = None,
    ) -> OrderProblem:
        """Return the problem of some requests with predicted times (Eq. 7 to 9).

        A service level that is met by a wait of the slack is met by each shorter one.
        """
        requests = list(requests)
        exec_s, slack_s = [], []
        for batch in range(1, max_batch + 1):
            exec_s.append([_exec_s(one, predictor, batch) for one in requests])
            slack_s.append([_slack_s(one, predictor, batch) for one in requests])
        worth = [one.worth for one in requests]
        return cls(exec_s, slack_s, price, worth, [one.waited_s for one in requests])

    def outcome(self, order: Order) -> OrderOutcome:
        """Return n and t of an order; each request is in it once (Eq. 3 to 11)."""
        wait_s = met = 0.0
        latency_s = self.waited_s
        worth = self.worth
        for batch in order:
            size = len(batch) - 1
            exec_s, slack_s = self.exec_s[size], self.slack_s[size]
            longest_s = 0.0
            for one in batch:
                took_s = exec_s[one]
                latency_s += worth[one] * (wait_s + took_s)
                if wait_s <= slack_s[one]:
                    met += worth[one]
                if took_s > longest_s:
                    longest_s = took_s
            wait_s += longest_s
        return OrderOutcome(met, latency_s)

    def score(self, order: Order) -> float:
        """Return G of an order, or with a price its worth less the price of its latency."""
        found = self.outcome(order)
        return found.g if self.price is None else found.met - self.price * found.latency_s

    @property
    def by_arrival(self) -> Order:
        """The order of arrival, in batches of the largest size."""
        return in_batches(range(self.count), self.max_batch)

    @property
    def shortest_first(self) -> Order:
        """The order of predicted execution time, in batches of the largest size."""
        line = sorted(range(self.count), key=self.exec_s[-1].__getitem__)
        return in_batches(line, self.max_batch)


def in_batches(places: Sequence[int], rows: int) -> Order:
    """Return requests in a given order as an order in batches of `rows`, the last one smaller."""
    return tuple(tuple(places[begin : begin + rows]) for begin in range(0, len(places), rows))


def _exec_s(one: SizedRequest, predictor: LatencyPredictor, batch: int) -> float:
    return max(predictor.exec_s(batch, one.input_tokens, one.output_tokens), 1e-9)


def _slack_s(one: SizedRequest, predictor: LatencyPredictor, batch: int) -> float:
    lengths = one.input_tokens, one.output_tokens
    if predictor.tpot_s(batch, *lengths) > one.tpot_s:
        return -math.inf
    of_whole_s = one.e2e_s - predictor.exec_s(batch, *lengths)
    of_first_s = one.ttft_s - predictor.prefill_s(batch, one.input_tokens)
    return min(of_whole_s, of_first_s) - one.waited_s
