"""Branch and bound for the best order of more requests than labels over subsets can hold."""

from __future__ import annotations

import math
from heapq import heappop, heappush
from itertools import combinations
from typing import NamedTuple

from timely_llm.core.errors import ConfigurationError
from timely_llm.policies.annealing.objective import Order, OrderProblem
from timely_llm.policies.annealing.search import FoundOrder

MOST_NODES = 20_000
"""Nodes of a search unless the caller says otherwise."""

_SAME = 1e-12  # gains below it are rounding, relative to the sum of all worth


def branch(problem: OrderProblem, known: Order = (), most_nodes: int = MOST_NODES) -> FoundOrder:
    """Return the best order by depth-first branch and bound, and whether it is proven.

    If the limit of nodes ends the search, the best order so far is returned and not proven.
    Evaluations are nodes: beginnings of orders of which a bound was computed.

    A node is a beginning of an order. Its children add a batch, and the most promising one is tried
    first. A node goes if its bound does not exceed the best order, or if another beginning with the
    same requests was no later and worth no less.

    The bound adds two relaxations of what is left. The most requests that can meet their limits are
    those of Moore and Hodgson's rule (Moore 1968); in batches of up to b, each takes a b-th of its
    seconds. The least latency is that of Smith's rule (Smith 1956) in batches of one. In larger
    batches it counts every b-th of the shortest requests as a wait.

    G is a ratio, and Dinkelbach's method maximises it, as in `exact`. The number of nodes is
    limited and the time is not, so that a result is the same on each machine.

    Args:
        problem: the requests.
        known: an order to begin from, such as that of the annealing.
        most_nodes: limit of nodes, at least 1.

    Raises:
        ConfigurationError: `most_nodes` is below 1.
    """
    if most_nodes < 1:
        raise ConfigurationError(f"branch and bound needs at least 1 node, not {most_nodes}")
    starts = [one for one in (known, problem.shortest_first, problem.by_arrival) if one]
    best = max(starts, key=problem.score)
    nodes = 0
    while True:
        score = problem.score(best)
        price = score if problem.price is None else problem.price
        tree = _Tree(problem, price, most_nodes - nodes)
        found = tree.search(best)
        nodes += tree.nodes
        better = bool(found) and problem.score(found) > score
        if better:
            best = found
        if not tree.complete:
            return FoundOrder(best, problem.score(best), nodes, False)
        if not better or problem.price is not None:
            return FoundOrder(best, problem.score(best), nodes, True)


class _Child(NamedTuple):
    """A beginning of an order.

    Attributes:
        bound: most that a whole order with it can be worth.
        end_s: seconds that its batches take.
        value: worth less price of its requests.
        batch: its last batch.
    """

    bound: float
    end_s: float
    value: float
    batch: tuple[int, ...]


class _Tree:
    """A search for an order with more worth less price of its latency than a known one.

    Args:
        problem: the requests.
        price: price of a second of latency, as a share of a request's worth.
        most_nodes: limit of nodes.

    Attributes:
        nodes: nodes so far.
        complete: the limit did not end the search.
    """

    def __init__(self, problem: OrderProblem, price: float, most_nodes: int) -> None:
        self._problem, self._price, self._most = problem, price, most_nodes
        self.nodes, self.complete = 0, most_nodes > 0
        self._worth = list(problem.worth)
        self._alike = len(set(self._worth)) == 1
        self._shortest_s = [min(column) for column in zip(*problem.exec_s, strict=True)]
        self._slack_s = [max(column) for column in zip(*problem.slack_s, strict=True)]
        places, shortest_s = range(problem.count), self._shortest_s
        self._by_due = sorted(places, key=lambda one: self._slack_s[one] + shortest_s[one])
        self._by_smith = sorted(places, key=lambda one: shortest_s[one] / self._worth[one])
        self._by_time = sorted(places, key=shortest_s.__getitem__)
        self._same = _SAME * sum(self._worth)
        self._floor = 0.0
        self._order: Order = ()
        self._seen: dict[int, list[tuple[float, float]]] = {}

    def search(self, known: Order) -> Order:
        """Return the best order that is above a known one; empty: none was found."""
        outcome = self._problem.outcome(known)
        self._floor = outcome.met - self._price * (outcome.latency_s - self._problem.waited_s)
        everything = (1 << self._problem.count) - 1
        if self.complete:
            self._descend(everything, 0.0, 0.0, ())
        return self._order

    def _descend(self, left: int, begin_s: float, value: float, before: Order) -> None:
        """Try all that may follow a beginning; `left` has a bit for each request that is left."""
        if not left:
            if value > self._floor + self._same:
                self._floor, self._order = value, before
            return
        for child in self._children(left, begin_s, value):
            if child.bound <= self._floor + self._same:
                return  # the others have no higher bound
            rest = left
            for one in child.batch:
                rest &= ~(1 << one)
            if self._reached(rest, child.end_s, child.value):
                continue
            self._descend(rest, child.end_s, child.value, (*before, child.batch))
            if not self.complete:
                return

    def _children(self, left: int, begin_s: float, value: float) -> list[_Child]:
        """Return the next batches with a bound above the floor, the highest bound first."""
        places = [one for one in range(self._problem.count) if left >> one & 1]
        made = []
        for size in range(1, min(self._problem.max_batch, len(places)) + 1):
            exec_s, slack_s = self._problem.exec_s[size - 1], self._problem.slack_s[size - 1]
            firsts = places if self._problem.max_batch > 1 else self._firsts(places, begin_s)
            for batch in combinations(firsts, size):
                if self.nodes >= self._most:
                    self.complete = False
                    return []
                self.nodes += 1
                new, longest_s, rest = value, 0.0, left
                for one in batch:
                    worth, took_s = self._worth[one], exec_s[one]
                    new += worth * (begin_s <= slack_s[one])
                    new -= self._price * worth * (begin_s + took_s)
                    longest_s = max(longest_s, took_s)
                    rest &= ~(1 << one)
                end_s = begin_s + longest_s
                bound = new + self._most_left(rest, end_s)
                if bound > self._floor + self._same:
                    made.append(_Child(bound, end_s, new, batch))
        made.sort(key=lambda child: -child.bound)
        return made

    def _firsts(self, places: list[int], begin_s: float) -> list[int]:
        """Return the requests that may run next in batches of one.

        If a request meets its limit wherever it runs from here on, or nowhere, one that is no
        longer and worth no less can take its place: all between them begin no later.
        """
        exec_s, slack_s, worth = self._shortest_s, self._slack_s, self._worth
        whole_s = math.fsum(exec_s[one] for one in places)
        ahead: list[int] = []
        made = []
        for one in self._by_time:
            if one not in places:
                continue
            last_s = begin_s + whole_s - exec_s[one]
            fixed = slack_s[one] < begin_s or slack_s[one] >= last_s * (1.0 + 1e-9)
            if not (fixed and any(worth[other] >= worth[one] for other in ahead)):
                made.append(one)
            ahead.append(one)
        return made

    def _reached(self, left: int, end_s: float, value: float) -> bool:
        """Return whether a beginning with the same requests was as soon and worth as much."""
        seen = self._seen.setdefault(left, [])
        for other_s, other in seen:
            if other_s <= end_s * (1.0 + _SAME) and other >= value - self._same:
                return True
        seen[:] = [(s, v) for s, v in seen if not (end_s <= s and value >= v)]
        seen.append((end_s, value))
        return False

    def _most_left(self, left: int, begin_s: float) -> float:
        """Return the most that the requests that are left can be worth, less their price."""
        return self._most_met(left, begin_s) - self._price * self._least_s(left, begin_s)

    def _most_met(self, left: int, begin_s: float) -> float:
        """Return the most worth of met limits (Moore 1968).

        A set of requests that meet their limits in batches of up to b has, of those due by any
        time, a b-th of their seconds before it.
        """
        size = self._problem.max_batch
        slack_s, shortest_s = self._slack_s, self._shortest_s
        longest: list[float] = []
        worths = []
        end_s = begin_s
        for one in self._by_due:
            if not left >> one & 1 or slack_s[one] < begin_s:
                continue
            worths.append(self._worth[one])
            took_s = shortest_s[one] / size
            end_s += took_s
            heappush(longest, -took_s)
            due_s = slack_s[one] + shortest_s[one]
            if end_s > due_s + 1e-9 * abs(due_s):
                end_s += heappop(longest)
        if self._alike:
            return len(longest) * self._worth[0]
        worths.sort(reverse=True)
        return math.fsum(worths[: len(longest)])

    def _least_s(self, left: int, begin_s: float) -> float:
        """Return the least latency, weighted by worth, in seconds."""
        worth, shortest_s, size = self._worth, self._shortest_s, self._problem.max_batch
        if size == 1:
            end_s, found_s = begin_s, 0.0
            for one in self._by_smith:
                if left >> one & 1:
                    end_s += shortest_s[one]
                    found_s += worth[one] * end_s
            return found_s
        waits_s, found_s, least, count = [0.0], 0.0, math.inf, 0
        for one in self._by_time:
            if left >> one & 1:
                found_s += worth[one] * (begin_s + shortest_s[one])
                waits_s.append(shortest_s[one] + waits_s[max(count + 1 - size, 0)])
                least, count = min(least, worth[one]), count + 1
        if not count:
            return 0.0
        wait_s = sum(waits_s[max(place - size + 1, 0)] for place in range(count))
        return found_s + wait_s * least
