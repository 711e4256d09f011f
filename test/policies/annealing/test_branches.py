"""Branch and bound: as good as the exact search, and honest about what it has proven."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given

from test.examples import examples
from test.policies.annealing.problems import alone, is_order_of, problems
from timely_llm.core.errors import ConfigurationError
from timely_llm.policies.annealing.branches import branch
from timely_llm.policies.annealing.objective import OrderProblem
from timely_llm.policies.annealing.search import Cooling, anneal, exact


@given(problems(most=8))
@examples(150)
def test_it_finds_what_the_exact_search_finds(problem: OrderProblem) -> None:
    found = branch(problem, most_nodes=10**9)
    assert is_order_of(found.order, problem)
    assert found.proven
    assert problem.score(found.order) == found.score
    assert found.score == pytest.approx(exact(problem).score, rel=1e-9, abs=1e-9)


@given(problems(most=10, max_batch=1))
@examples(150)
def test_ten_requests_in_batches_of_one_have_the_optimum_too(problem: OrderProblem) -> None:
    found = branch(problem, most_nodes=10**9)
    assert found.proven
    assert found.score == pytest.approx(exact(problem).score, rel=1e-9, abs=1e-9)


@given(problems(most=8))
@examples(60)
def test_a_limit_of_nodes_leaves_an_order_no_worse_than_the_known_one(
    problem: OrderProblem,
) -> None:
    known = anneal(problem, Cooling(iterations=5), Random(1))
    found = branch(problem, known.order, most_nodes=5)
    assert is_order_of(found.order, problem)
    assert found.evaluations <= 5
    assert found.score >= known.score
    if found.proven:
        assert found.score == pytest.approx(exact(problem).score, rel=1e-9, abs=1e-9)


def test_more_requests_than_the_exact_search_takes_are_proven() -> None:
    draw = Random(3)
    took = tuple(draw.uniform(1.0, 9.0) for _ in range(20))
    found = branch(alone(took, tuple(4.0 * one for one in took)), most_nodes=10**6)
    assert found.proven


def test_a_limit_below_one_node_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="at least 1 node, not 0"):
        branch(alone((1.0,), (1.0,)), most_nodes=0)
