"""Algorithm 2, line by line, and the choice of an edge by the views of servers."""

from __future__ import annotations

import math

import pytest

from timely_llm.dispatch.contract import ServerView
from timely_llm.progressive.choice import SmallModel, choose_model, expansion_s, nearest_edge

MODELS = (
    SmallModel("1.5b", lambda tokens: 0.0226 * tokens),
    SmallModel("7b", lambda tokens: 0.0718 * tokens),
    SmallModel("8b", lambda tokens: 0.0796 * tokens),
)
SMALL, MIDDLE, LARGE = range(3)


@pytest.mark.parametrize(
    ("current", "budget_s", "queued", "chosen"),
    [
        pytest.param(LARGE, 38.0, 0, MIDDLE, id="line 4: the largest smaller model in time"),
        pytest.param(LARGE, 20.0, 0, SMALL, id="line 4: the only one in time"),
        pytest.param(LARGE, 5.0, 0, SMALL, id="line 4: none is in time"),
        pytest.param(SMALL, 5.0, 0, SMALL, id="line 4: there is no smaller one"),
        pytest.param(SMALL, 38.0, 3, MIDDLE, id="lines 7 to 10: the first larger one in time"),
        pytest.param(MIDDLE, 38.0, 0, MIDDLE, id="lines 7 to 10: no larger one is in time"),
        pytest.param(SMALL, 38.0, 4, SMALL, id="line 12: the queue is full"),
    ],
)
def test_algorithm_2(current: int, budget_s: float, queued: int, chosen: int) -> None:
    assert choose_model(MODELS, current, 500, budget_s, queued) == chosen


def edge(name: str, requests: int = 0, rtt_s: float = 0.0, active: bool = True) -> ServerView:
    steps_s = (0.02, 0.021, 0.022, 0.023)
    return ServerView(
        name, steps_s, 0.001, 0.0001, max_rows=4, requests=requests, rtt_s=rtt_s, active=active
    )


def test_an_expansion_takes_prompts_and_the_steps_of_its_longest_row() -> None:
    assert expansion_s(edge("a"), 100, [50]) == pytest.approx(0.01 + 50 * 0.02)
    assert expansion_s(edge("a", 2), 100, [50, 30]) == pytest.approx(0.02 + 50 * 0.023)


def test_rows_beyond_the_most_of_a_step_take_turns() -> None:
    assert expansion_s(edge("a", 6), 0, [40, 40]) == pytest.approx(2 * 40 * 0.023)


def test_the_nearest_edge_is_the_one_with_the_least_time() -> None:
    edges = [edge("busy", 6), edge("far", rtt_s=3.0), edge("near", 1), edge("gone", active=False)]
    name, seconds = nearest_edge(edges, 100, [50])
    assert name == "near"
    assert seconds == pytest.approx(0.01 + 50 * 0.021)


def test_without_an_edge_there_is_none() -> None:
    assert nearest_edge([edge("gone", active=False)], 0, [1]) == ("", math.inf)
