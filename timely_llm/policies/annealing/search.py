"""Searches for the best order of requests; each counts its evaluations."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import combinations
from random import Random
from typing import NamedTuple

from timely_llm.core.errors import ConfigurationError
from timely_llm.policies.annealing.objective import Order, OrderProblem

SCALE = 0.05
"""Loss that is accepted with a chance of 1/e at the first temperature under `scaled`, as a share of
the score of the start."""

MOST_EXACT = 16
"""Most requests of `exact`: 16 have 65,536 subsets."""

_SAME = 1e-12  # gains below it are rounding, relative to the sum of all worth

MOST_EXHAUSTIVE = 10
"""Most requests of `exhaustive`: 10 have 3.6 million orders in batches of one."""


class FoundOrder(NamedTuple):
    """An order, and what the search for it cost.

    Attributes:
        order: the order.
        score: its score.
        evaluations: orders, or partial orders, that the search scored.
        proven: the search has shown that no order has a higher score.
    """

    order: Order
    score: float
    evaluations: int
    proven: bool = False


class Accept(StrEnum):
    """When a new order that is no better replaces the present one.

    `literal` is line 36 as printed, `exp(-(f_new - f) / T) < rand`: never. `metropolis` is the same
    turned round, `exp((f_new - f) / T) > rand`: nearly always, since G differs by thousandths and T
    is at least 20. `scaled` has the temperature relative to the score of the start.
    """

    LITERAL = "literal"
    METROPOLIS = "metropolis"
    SCALED = "scaled"


@dataclass(frozen=True)
class Cooling:
    """Parameters of the annealing, with the paper's values (§5.1).

    Attributes:
        t0: first temperature.
        t_end: temperature below which the search ends.
        decay: factor of the temperature after each round.
        iterations: moves of a round.
        accept: when an order that is no better is accepted.
        reset: each temperature has all `iterations`. Off: line 5 sets k once, so that each later
            temperature has one.
        best: the best order is returned. Off: the last one, as printed.

    Raises:
        ConfigurationError: a parameter is out of its range.
    """

    t0: float = 500.0
    t_end: float = 20.0
    decay: float = 0.95
    iterations: int = 100
    accept: Accept = Accept.SCALED
    reset: bool = False
    best: bool = True

    def __post_init__(self) -> None:
        for name, possible, allowed in (
            ("t_end", 0.0 < self.t_end < math.inf, "finite and above 0"),
            ("t0", self.t_end <= self.t0 < math.inf, "finite and at least t_end"),
            ("decay", 0.0 < self.decay < 1.0, "above 0 and below 1"),
            ("iterations", self.iterations >= 1, "at least 1"),
        ):
            if not possible:
                value = getattr(self, name)
                raise ConfigurationError(f"annealing: {name} must be {allowed}, not {value:g}")


def anneal(problem: OrderProblem, cooling: Cooling, draw: Random) -> FoundOrder:
    """Return the order that simulated annealing finds (Huang et al. 2025, Algorithm 1).

    The start is the better of the order of arrival and the order of execution times, both in
    batches of the largest size. If the latter meets every service level, it is returned at once
    (lines 3 to 15). Line 15 leaves f at the worse score; here it is the start's.

    Args:
        problem: the requests.
        cooling: parameters.
        draw: source of random numbers.
    """
    start, f = problem.shortest_first, problem.score(problem.shortest_first)
    evaluations = 1
    if math.isclose(problem.outcome(start).met, math.fsum(problem.worth)):
        return FoundOrder(start, f, evaluations)
    evaluations += 1
    if f < (f_init := problem.score(problem.by_arrival)):
        start, f = problem.by_arrival, f_init
    present, best, best_f = start, start, f
    unit = SCALE * abs(f) / cooling.t0 or 1.0
    temperature, k = cooling.t0, 0
    while True:
        while True:
            k += 1
            new = moved(present, problem.max_batch, draw)
            if new is not present:
                evaluations += 1
                f_new = problem.score(new)
                if f_new > f or _accepted(f_new - f, temperature, cooling.accept, unit, draw):
                    present, f = new, f_new
                    if f > best_f:
                        best, best_f = present, f
            if k >= cooling.iterations:
                break
        temperature *= cooling.decay
        if temperature < cooling.t_end:
            break
        if cooling.reset:
            k = 0
    if cooling.best:
        return FoundOrder(best, best_f, evaluations)
    return FoundOrder(present, f, evaluations)


def _accepted(gain: float, temperature: float, accept: Accept, unit: float, draw: Random) -> bool:
    """Return whether an order with a gain of at most 0 is accepted (line 36)."""
    if accept is Accept.LITERAL:
        return math.exp(min(-gain / temperature, 700.0)) < draw.random()
    if accept is Accept.SCALED:
        temperature *= unit
    return math.exp(max(gain / temperature, -700.0)) > draw.random()


def moved(order: Order, max_batch: int, draw: Random) -> Order:
    """Return an order after one of the three moves, each as likely (lines 20 to 28).

    A random request goes into the batch before, or into the batch after, or trades places with
    another one. The last batch may be followed by a new one. A move into a full batch, out of the
    first one, or of a single last request changes nothing: then `order` itself is returned.
    """
    operation = int(3 * draw.random())
    count = sum(map(len, order))
    batch, place = _at(order, int(count * draw.random()))
    if operation == 2:
        other, other_place = _at(order, int(count * draw.random()))
        if batch == other:
            return order
        swapped = [list(one) for one in order]
        swapped[batch][place] = order[other][other_place]
        swapped[other][other_place] = order[batch][place]
        return tuple(map(tuple, swapped))
    target = batch - 1 if operation == 0 else batch + 1
    if target < 0:
        return order
    if target == len(order):
        return order if len(order[batch]) == 1 else _shifted(order, batch, place, target)
    return order if len(order[target]) == max_batch else _shifted(order, batch, place, target)


def _at(order: Order, place: int) -> tuple[int, int]:
    """Return the batch of the request at a place of the whole order, and its place there."""
    for number, batch in enumerate(order):
        if place < len(batch):
            return number, place
        place -= len(batch)
    raise IndexError(place)


def _shifted(order: Order, batch: int, place: int, target: int) -> Order:
    """Return an order with one request in another batch; a batch that becomes empty is gone."""
    batches = [list(one) for one in order]
    one = batches[batch].pop(place)
    if target == len(batches):
        batches.append([])
    batches[target].append(one)
    return tuple(tuple(each) for each in batches if each)


def exact(problem: OrderProblem, known: Order = ()) -> FoundOrder:
    """Return the best order without trying all: labels over subsets, with bounds.

    A label is a set of requests that run first, the seconds that they take, and their worth. Of two
    labels of one set, the one that is neither sooner nor worth more is dropped: whatever follows is
    worth no less the sooner it begins. In batches of one all labels of a set take the same seconds,
    so one remains, and this is dynamic programming over subsets. In larger batches several remain.
    A label that cannot exceed the best known order is dropped too, by a bound of what the others
    can add.

    G is a ratio. Dinkelbach's method maximises `n - G t` for the G of the best known order until no
    order is above 0 (Dinkelbach 1967).

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
            return FoundOrder(best, score, evaluations, True)
        best = found.order
        if problem.price is not None:
            return FoundOrder(best, problem.score(best), evaluations, True)


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


def exhaustive(problem: OrderProblem) -> FoundOrder:
    """Return the best of all orders, the first one of several (Huang et al. 2025, §4.3).

    Requests of one batch have no order among themselves, so each batch is tried once.

    Raises:
        ConfigurationError: there are more than `MOST_EXHAUSTIVE` requests.
    """
    if problem.count > MOST_EXHAUSTIVE:
        raise ConfigurationError(
            f"an exhaustive search takes at most {MOST_EXHAUSTIVE} requests, not {problem.count}"
        )
    best, best_score, evaluations = problem.by_arrival, problem.score(problem.by_arrival), 0
    for order in _orders(tuple(range(problem.count)), problem.max_batch):
        evaluations += 1
        if (score := problem.score(order)) > best_score:
            best, best_score = order, score
    return FoundOrder(best, best_score, evaluations, True)


def _orders(left: tuple[int, ...], max_batch: int) -> Iterator[Order]:
    """Yield every order of some requests."""
    if not left:
        yield ()
    for size in range(1, min(max_batch, len(left)) + 1):
        for batch in combinations(left, size):
            after = tuple(one for one in left if one not in batch)
            for rest in _orders(after, max_batch):
                yield (batch, *rest)
