"""The best order without trying all: labels over subsets, with bounds.

A label is a set of requests that run first, the seconds that they take, and their worth. Of two
labels of one set, the one that is neither sooner nor worth more is dropped: whatever follows is
worth no less the sooner it begins. In batches of one all labels of a set take the same seconds, so
one remains, and this is dynamic programming over subsets. In larger batches several remain. A label
that cannot exceed the best known order is dropped too, by a bound of what the others can add.

G is a ratio. Dinkelbach's method maximises `n - G t` for the G of the best known order until no
order is above 0 (Dinkelbach 1967).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import NamedTuple

from timely_llm.core.errors import ConfigurationError
from timely_llm.policies.annealing.objective import Order, OrderProblem
from timely_llm.policies.annealing.search.found import FoundOrder

MOST_EXACT = 16
"""Most requests: 16 have 65,536 subsets."""

_SAME = 1e-12  # gains below it are rounding, relative to the sum of all worth


def exact(problem: OrderProblem, known: Order = ()) -> FoundOrder:
    """Return the best order.

    Args:
        problem: the requests.
        known: an order to begin from, such as that of another search; the better it is, the more
            is left out.

    Raises:
        ConfigurationError: there are more than `MOST_EXACT` requests.
    """
    if problem.count > MOST_EXACT:
        raise ConfigurationError(
            f"an exact search takes at most {MOST_EXACT} requests, not {problem.count}"
        )
    starts = [one for one in (known, problem.shortest_first, problem.by_arrival) if one]
    best = max(starts, key=problem.score)
    evaluations = len(starts)
    batches = _batches(problem)
    while True:
        score = problem.score(best)
        price = score if problem.price is None else problem.price
        found = _Labels(problem, batches, price).best(_linear(problem, best, price))
        evaluations += found.evaluations
        if not found.order or problem.score(found.order) <= score:
            return FoundOrder(best, score, evaluations)
        best = found.order
        if problem.price is not None:
            return FoundOrder(best, problem.score(best), evaluations)


def _linear(problem: OrderProblem, order: Order, price: float) -> float:
    """Return the worth of an order less the price of its latency."""
    found = problem.outcome(order)
    return found.met - price * (found.latency_s - problem.waited_s)


class _Batch(NamedTuple):
    """A possible batch.

    Attributes:
        mask: its requests, a bit for each.
        members: their places.
        longest_s: seconds until it ends.
        worth: of its requests, in sum.
        exec_s: seconds of its requests, weighted by worth, in sum.
        slack: (longest wait, worth) of its requests.
    """

    mask: int
    members: tuple[int, ...]
    longest_s: float
    worth: float
    exec_s: float
    slack: tuple[tuple[float, float], ...]


def _batches(problem: OrderProblem) -> list[_Batch]:
    """Return every batch that the requests can form."""
    made = []
    for size in range(1, min(problem.max_batch, problem.count) + 1):
        exec_s, slack_s = problem.exec_s[size - 1], problem.slack_s[size - 1]
        for members in combinations(range(problem.count), size):
            worths = [problem.worth[one] for one in members]
            weighted = [problem.worth[one] * exec_s[one] for one in members]
            slack = tuple((slack_s[one], problem.worth[one]) for one in members)
            mask = sum(1 << one for one in members)
            longest_s = max(exec_s[one] for one in members)
            made.append(_Batch(mask, members, longest_s, sum(worths), sum(weighted), slack))
    return made


_Label = tuple[float, float, tuple[int, ...], "_Label | None"]
"""(seconds, worth less price, last batch, label before it)."""


class _Labels:
    """Search for the order with the most worth less the price of its latency.

    Args:
        problem: the requests.
        batches: all batches that they can form.
        price: price of a second of latency, as a share of a request's worth.
    """

    def __init__(self, problem: OrderProblem, batches: Sequence[_Batch], price: float) -> None:
        self._problem, self._all, self._price = problem, batches, price
        self._shortest_s = [min(column) for column in zip(*problem.exec_s, strict=True)]
        self._slack_s = [max(column) for column in zip(*problem.slack_s, strict=True)]
        self._same = _SAME * max(sum(problem.worth), 1e-300)

    def best(self, floor: float) -> FoundOrder:
        """Return the best order above a floor; its order is empty if there is none."""
        everything = (1 << self._problem.count) - 1
        labels: dict[int, list[_Label]] = {0: [(0.0, 0.0, (), None)]}
        evaluations = 0
        for mask in range(everything):
            here = labels.pop(mask, None)
            if here is None:
                continue
            fixed_s, sum_worth, slack = self._rest(everything & ~mask)
            following = [batch for batch in self._all if not batch.mask & mask]
            for label in _undominated(here):
                begin_s, value = label[0], label[1]
                most = sum(worth for slack_s, worth in slack if slack_s >= begin_s)
                bound = value + most - self._price * (fixed_s + sum_worth * begin_s)
                if bound <= floor + self._same:
                    continue
                evaluations += len(following)
                for batch in following:
                    met = 0.0
                    for slack_s, worth in batch.slack:
                        if begin_s <= slack_s:
                            met += worth
                    cost = self._price * (batch.exec_s + batch.worth * begin_s)
                    new: _Label = (
                        begin_s + batch.longest_s, value + met - cost, batch.members, label,
                    )  # fmt: skip
                    labels.setdefault(mask | batch.mask, []).append(new)
        best = max(labels.get(everything, ()), key=lambda label: label[1], default=None)
        if best is None or best[1] <= floor + self._same:
            return FoundOrder((), floor, evaluations)
        return FoundOrder(_order(best), best[1], evaluations)

    def _rest(self, mask: int) -> tuple[float, float, list[tuple[float, float]]]:
        """Return what bounds the requests that are left.

        Each takes its shortest time. If r requests run in earlier batches of at most b, these take
        at least as long as every b-th of the r shortest ones, from the longest of them down.

        Returns:
            their least latency if they began at 0, weighted by worth; the sum of their worth; and
            (longest wait, worth) of each.
        """
        worth, size = self._problem.worth, self._problem.max_batch
        places = [one for one in range(self._problem.count) if mask >> one & 1]
        times_s = sorted(self._shortest_s[one] for one in places)
        waits_s = [0.0]
        for place, took_s in enumerate(times_s):
            waits_s.append(took_s + waits_s[max(place + 1 - size, 0)])
        wait_s = sum(waits_s[max(place - size + 1, 0)] for place in range(len(places)))
        fixed_s = sum(worth[one] * self._shortest_s[one] for one in places)
        fixed_s += wait_s * min(worth[one] for one in places)
        slack = [(self._slack_s[one], worth[one]) for one in places]
        return fixed_s, sum(worth[one] for one in places), slack


def _undominated(labels: list[_Label]) -> list[_Label]:
    """Return the labels that no sooner one reaches in worth."""
    labels.sort(key=lambda label: (label[0], -label[1]))
    kept: list[_Label] = []
    for label in labels:
        if not kept or label[1] > kept[-1][1]:
            kept.append(label)
    return kept


def _order(label: _Label | None) -> Order:
    """Return the order that a label ends."""
    batches = []
    while label is not None:
        if label[2]:
            batches.append(label[2])
        label = label[3]
    return tuple(reversed(batches))
