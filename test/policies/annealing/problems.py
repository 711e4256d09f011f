"""Small problems of order, for tests."""

from __future__ import annotations

from hypothesis import strategies as st

from timely_llm.policies.annealing.objective import Order, OrderProblem


def alone(
    exec_ms: tuple[float, ...], limit_ms: tuple[float, ...], price: float | None = None
) -> OrderProblem:
    """Return requests that run one at a time, with limits of the whole answer; seconds are ms."""
    slack = [limit - took for took, limit in zip(exec_ms, limit_ms, strict=True)]
    return OrderProblem([exec_ms], [slack], price)


@st.composite
def problems(
    draw: st.DrawFn, most: int = 6, max_batch: int = 4, *, priced: bool = True
) -> OrderProblem:
    """Return a problem of up to `most` requests; larger batches are no faster."""
    count, size = draw(st.integers(1, most)), draw(st.integers(1, max_batch))
    exec_s = [[draw(st.integers(1, 40)) / 8 for _ in range(count)]]
    while len(exec_s) < size:
        exec_s.append([before + draw(st.integers(0, 8)) / 8 for before in exec_s[-1]])
    limit_s = [draw(st.integers(0, 100)) / 8 for _ in range(count)]
    slack_s = [[limit - took for took, limit in zip(row, limit_s, strict=True)] for row in exec_s]
    price = draw(st.sampled_from([None, 0.0, 0.01, 0.5])) if priced else None
    worth = [draw(st.sampled_from([0.5, 1.0, 2.0])) for _ in range(count)]
    return OrderProblem(exec_s, slack_s, price, worth, [0.5] * count)


def is_order_of(order: Order, problem: OrderProblem) -> bool:
    """Return whether an order has each request once, in batches that are not too large."""
    places = sorted(one for batch in order for one in batch)
    sizes = [len(batch) for batch in order]
    return places == list(range(problem.count)) and 0 < min(sizes) <= max(sizes) <= (
        problem.max_batch
    )
