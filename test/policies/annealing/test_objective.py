"""G of an order, with the examples of Huang et al. 2025, Figures 3 to 5.

The figures print sums of latencies, and the paper's text no execution times. The times here are the
ones in whole hundreds of milliseconds that have those sums.
"""

from __future__ import annotations

import math

import pytest

from test.policies.annealing.problems import alone
from timely_llm.core.errors import ConfigurationError
from timely_llm.policies.annealing.latency import V100X2_QWEN25_7B as TABLE_2
from timely_llm.policies.annealing.objective import OrderProblem, SizedRequest

EXEC_MS = (300.0, 500.0, 800.0)
SHORTEST_FIRST, SECOND_FIRST = ((0,), (1,), (2,)), ((1,), (0,), (2,))


def test_figure_3_an_order_by_service_levels_meets_all() -> None:
    problem = alone(EXEC_MS, (800.0, 500.0, 1600.0))
    assert problem.outcome(SHORTEST_FIRST) == (2, 2700)
    assert 1e3 * problem.score(SHORTEST_FIRST) == pytest.approx(0.74, abs=0.005)
    assert problem.outcome(SECOND_FIRST) == (3, 2900)
    assert 1e3 * problem.score(SECOND_FIRST) == pytest.approx(1.03, abs=0.005)


def test_figure_4_a_smaller_batch_meets_all() -> None:
    exec_ms = [[300.0] * 3, [500.0] * 3, [800.0] * 3]
    limit_ms = (500.0, 500.0, 800.0)
    slack = [[limit - row[0] for limit in limit_ms] for row in exec_ms]
    problem = OrderProblem(exec_ms, slack)
    assert problem.outcome(((0, 1, 2),)) == (1, 2400)
    assert problem.outcome(((0, 1), (2,))) == (3, 1800)
    # The figure prints 0.0004 and 0.00167 "req/s", which are requests per millisecond.
    assert problem.score(((0, 1, 2),)) == pytest.approx(0.0004, abs=0.00002)
    assert problem.score(((0, 1), (2,))) == pytest.approx(0.00167, abs=0.00001)


def test_figure_5_a_request_that_cannot_meet_its_level_waits() -> None:
    problem = alone(EXEC_MS, (200.0, 500.0, 1600.0))
    assert problem.outcome(SHORTEST_FIRST) == (1, 2700)
    assert 1e3 * problem.score(SHORTEST_FIRST) == pytest.approx(0.37, abs=0.005)
    assert problem.outcome(SECOND_FIRST) == (2, 2900)
    # The figure prints 0.74, which is 2 over 2.7 s.
    assert 1e3 * problem.score(SECOND_FIRST) == pytest.approx(0.69, abs=0.005)


def test_a_batch_waits_for_the_longest_request_of_each_batch_before() -> None:
    exec_s = [[1.0, 2.0, 4.0, 8.0]] * 2
    problem = OrderProblem(exec_s, [[math.inf] * 4] * 2)
    # Batches of 2 and 4 s run before: 1 + 2, 2 + 4 and 6 + 8 s.
    assert problem.outcome(((0, 1), (2,), (3,))) == (4, 3 + 6 + 14)


def test_the_time_before_the_order_counts_as_latency() -> None:
    problem = OrderProblem([[1.0]], [[0.0]], waited_s=[5.0])
    assert problem.outcome(((0,),)) == (1, 6.0)


def test_a_code_needs_its_whole_answer_in_time_and_a_chat_its_tokens() -> None:
    code = SizedRequest(100, 180, e2e_s=30.0, waited_s=2.0)
    chat = SizedRequest(100, 180, ttft_s=10.0, tpot_s=0.05)
    slow = SizedRequest(100, 180, ttft_s=10.0, tpot_s=0.01)
    problem = OrderProblem.of([code, chat, slow], TABLE_2, 2)
    for batch in (1, 2):
        took_s = TABLE_2.exec_s(batch, 100, 180)
        assert problem.exec_s[batch - 1] == [took_s] * 3
        assert problem.slack_s[batch - 1] == [
            pytest.approx(30.0 - took_s - 2.0),
            pytest.approx(10.0 - TABLE_2.prefill_s(batch, 100)),
            -math.inf,
        ]


def test_with_a_price_an_urgent_request_goes_before_shorter_ones() -> None:
    exec_s, slack_s = [[1.0, 2.0]], [[0.5, 0.5]]
    problem = OrderProblem(exec_s, slack_s, 0.01, worth=[1.0, 5.0])
    assert problem.score(((1,), (0,))) == pytest.approx(5.0 - 0.01 * (3.0 + 5 * 2.0))
    assert problem.score(((1,), (0,))) > problem.score(((0,), (1,)))


@pytest.mark.parametrize(
    ("tables", "words"),
    [
        (([], []), "need a row of equal length"),
        (([[1.0]], [[1.0, 2.0]]), "need a row of equal length"),
        (([[0.0]], [[1.0]]), "must be above 0"),
        (([[1.0]], [[1.0]], -1.0), "price must be finite and from 0 on, not -1"),
        (([[1.0]], [[1.0]], None, [0.0]), "worth of a request must be above 0"),
        (([[1.0]], [[1.0]], None, [1.0, 1.0]), "need 1 values each"),
    ],
)
def test_an_impossible_problem_is_refused(
    tables: tuple[list[list[float]], ...], words: str
) -> None:
    with pytest.raises(ConfigurationError, match=words):
        OrderProblem(*tables)  # type: ignore[arg-type]
