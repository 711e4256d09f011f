"""What a search found."""

from __future__ import annotations

from typing import NamedTuple

from timely_llm.policies.annealing.objective import Order


class FoundOrder(NamedTuple):
    """An order, and what the search for it cost.

    Attributes:
        order: the order.
        score: its score.
        evaluations: orders, or partial orders, that the search scored.
    """

    order: Order
    score: float
    evaluations: int
