"""Simulated annealing over orders and batch sizes (Huang et al. 2025, Algorithm 1)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from random import Random

from timely_llm.core.errors import ConfigurationError
from timely_llm.policies.annealing.objective import Order, OrderProblem
from timely_llm.policies.annealing.search.found import FoundOrder

SCALE = 0.05
"""Loss that is accepted with a chance of 1/e at the first temperature under `scaled`, as a share of
the score of the start."""


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
    """Return the order that annealing finds.

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
