"""Every order of a few requests, in batches of every size (Huang et al. 2025, §4.3)."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

from timely_llm.core.errors import ConfigurationError
from timely_llm.policies.annealing.objective import Order, OrderProblem
from timely_llm.policies.annealing.search.found import FoundOrder

MOST_EXHAUSTIVE = 10
"""Most requests: 10 have 3.6 million orders in batches of one."""


def exhaustive(problem: OrderProblem) -> FoundOrder:
    """Return the best of all orders, the first one of several.

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
    return FoundOrder(best, best_score, evaluations)


def _orders(left: tuple[int, ...], max_batch: int) -> Iterator[Order]:
    """Yield every order of some requests."""
    if not left:
        yield ()
    for size in range(1, min(max_batch, len(left)) + 1):
        for batch in combinations(left, size):
            after = tuple(one for one in left if one not in batch)
            for rest in _orders(after, max_batch):
                yield (batch, *rest)
