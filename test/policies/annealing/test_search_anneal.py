"""Algorithm 1 of Huang et al. 2025, line by line."""

from __future__ import annotations

import math
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from test.examples import examples
from test.policies.annealing.problems import alone, is_order_of, problems
from timely_llm.core.errors import ConfigurationError
from timely_llm.policies.annealing import search as module
from timely_llm.policies.annealing.objective import Order, OrderProblem
from timely_llm.policies.annealing.search import Accept, Cooling, anneal, moved


class Draws(Random):
    """Random numbers that are known."""

    def __init__(self, *values: float) -> None:
        super().__init__(0)
        self._values = list(values)

    def random(self) -> float:
        return self._values.pop(0)


SQUEEZE, DELAY, SWAP = 0.0, 0.4, 0.9


def place(number: int, count: int) -> float:
    """Return the draw that chooses a place."""
    return (number + 0.5) / count


def test_lines_3_to_10_a_shortest_first_order_that_meets_all_is_returned_at_once() -> None:
    found = anneal(alone((3.0, 1.0, 2.0), (9.0, 9.0, 9.0)), Cooling(), Draws())
    assert found.order == ((1,), (2,), (0,))
    assert found.evaluations == 1


def test_lines_12_to_15_the_better_of_two_orders_is_the_start() -> None:
    cooling = Cooling(t0=20.0, iterations=1)
    # The move is a swap of a request with itself, so that the start is returned.
    draws = SWAP, place(0, 2), place(0, 2)
    by_arrival = anneal(alone((3.0, 2.0), (3.0, 5.0)), cooling, Draws(*draws))
    assert by_arrival.order == ((0,), (1,))
    shortest = anneal(alone((3.0, 2.0), (1.0, 2.0)), cooling, Draws(*draws))
    assert shortest.order == ((1,), (0,))
    assert by_arrival.evaluations == shortest.evaluations == 2


@pytest.mark.parametrize(
    ("order", "draws", "expected"),
    [
        (((0,), (1, 2)), (SQUEEZE, place(2, 3)), ((0, 2), (1,))),
        (((0,), (1,)), (SQUEEZE, place(1, 2)), ((0, 1),)),
        (((0, 1), (2,)), (SQUEEZE, place(2, 3)), None),
        (((0,), (1, 2)), (SQUEEZE, place(0, 3)), None),
        (((0, 1), (2,)), (DELAY, place(0, 3)), ((1,), (2, 0))),
        (((0,), (1, 2)), (DELAY, place(0, 3)), None),
        (((0, 1),), (DELAY, place(0, 2)), ((1,), (0,))),
        (((0, 1), (2,)), (DELAY, place(2, 3)), None),
        (((0, 1), (2,)), (SWAP, place(0, 3), place(2, 3)), ((2, 1), (0,))),
        (((0, 1), (2,)), (SWAP, place(0, 3), place(1, 3)), None),
    ],
    ids=[
        "line 22: into the batch before",
        "line 22: an empty batch is gone",
        "line 22: the batch before is full",
        "line 22: there is none before the first",
        "line 25: into the batch after",
        "line 25: the batch after is full",
        "line 25: a new last batch",
        "line 25: alone in the last batch",
        "line 28: two requests trade places",
        "line 28: of one batch",
    ],
)
def test_lines_20_to_28_a_move(
    order: Order, draws: tuple[float, ...], expected: Order | None
) -> None:
    new = moved(order, 2, Draws(*draws))
    assert new == (order if expected is None else expected)
    assert (new is order) == (expected is None)


@given(problems(), st.integers(0, 1000))
@examples(60)
def test_a_move_keeps_each_request_once(problem: OrderProblem, seed: int) -> None:
    draw, order = Random(seed), problem.by_arrival
    for _ in range(30):
        order = moved(order, problem.max_batch, draw)
        assert is_order_of(order, problem)


def test_line_32_a_better_order_is_accepted() -> None:
    problem = alone((2.0, 3.0), (5.0, 3.0))  # by arrival and shortest first, the second is late
    cooling = Cooling(t0=20.0, iterations=1, best=False)
    found = anneal(problem, cooling, Draws(SWAP, place(0, 2), place(1, 2)))
    assert found.order == ((1,), (0,))
    assert found.score == problem.score(((1,), (0,)))
    assert found.evaluations == 3


@pytest.mark.parametrize(
    ("accept", "chance", "accepted"),
    [
        (Accept.LITERAL, 0.999999, False),
        (Accept.METROPOLIS, 0.99, True),
        (Accept.SCALED, 0.99, False),
        (Accept.SCALED, 1e-9, True),
    ],
)
def test_line_36_a_worse_order_is_accepted(accept: Accept, chance: float, accepted: bool) -> None:
    # The start has both limits met, but the third request is late in every order.
    problem = alone((2.0, 3.0, 9.0), (2.0, 5.0, 1.0))
    cooling = Cooling(t0=20.0, iterations=1, accept=accept, best=False)
    draws = SWAP, place(0, 3), place(1, 3), chance
    found = anneal(problem, cooling, Draws(*draws))
    assert found.order == (((1,), (0,), (2,)) if accepted else ((0,), (1,), (2,)))


def test_the_best_order_is_kept_unless_the_last_one_is_wanted() -> None:
    problem = alone((2.0, 3.0, 9.0), (2.0, 5.0, 1.0))
    draws = SWAP, place(0, 3), place(1, 3), 0.5
    for best, order in ((True, ((0,), (1,), (2,))), (False, ((1,), (0,), (2,)))):
        cooling = Cooling(t0=20.0, iterations=1, accept=Accept.METROPOLIS, best=best)
        assert anneal(problem, cooling, Draws(*draws)).order == order


@pytest.mark.parametrize(("reset", "moves"), [(False, 100 + 62), (True, 63 * 100)])
def test_lines_16_to_43_the_moves_of_the_papers_parameters(
    monkeypatch: pytest.MonkeyPatch, reset: bool, moves: int
) -> None:
    made = []

    def count(order: Order, max_batch: int, draw: Random) -> Order:
        made.append(order)
        return moved(order, max_batch, draw)

    monkeypatch.setattr(module, "moved", count)
    anneal(alone((2.0, 3.0, 9.0), (1.0, 1.0, 1.0)), Cooling(reset=reset), Random(0))
    assert len(made) == moves


@given(problems(), st.integers(0, 99), st.sampled_from(Accept), st.booleans(), st.booleans())
@examples(60)
def test_it_returns_an_order_with_its_score(
    problem: OrderProblem, seed: int, accept: Accept, reset: bool, best: bool
) -> None:
    cooling = Cooling(accept=accept, reset=reset, best=best, iterations=20)
    found = anneal(problem, cooling, Random(seed))
    assert is_order_of(found.order, problem)
    assert problem.score(found.order) == pytest.approx(found.score)
    assert found == anneal(problem, cooling, Random(seed))
    if best:
        assert found.score >= problem.score(problem.shortest_first)


@pytest.mark.parametrize(
    "wrong",
    [{"t0": 10.0}, {"t0": math.inf}, {"t_end": 0.0}, {"decay": 1.0}, {"iterations": 0}],
)
def test_an_impossible_parameter_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ConfigurationError, match=f"annealing: {next(iter(wrong))} must be"):
        Cooling(**wrong)  # type: ignore[arg-type]
