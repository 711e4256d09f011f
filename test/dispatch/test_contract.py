"""Views of servers and requests that wait."""

from __future__ import annotations

import math

import pytest

from test.dispatch.views import plan, question, server
from timely_llm.core.errors import RequestError
from timely_llm.core.time_utility import NORMAL, URGENT, TimeUtility
from timely_llm.dispatch.contract import KAPPA, MOST, Due


def test_a_step_takes_what_the_view_says_and_a_line_beyond() -> None:
    view = server(steps_s=(0.02, 0.03), row_s=0.005)
    assert [view.step_s(rows) for rows in (1, 2, 3, 5)] == pytest.approx([0.02, 0.03, 0.035, 0.045])


def test_time_passes_in_a_view() -> None:
    view = server(
        step_s=0.02, row_s=0.0, prefill_token_s=0.001, due=(Due(0.5, 8, 1.0, 0.5, 100), Due(0.3, 2))
    )
    half, *rest = view.advanced(0.05)
    assert half == pytest.approx(Due(0.45, 8, 1.0, 0.5, 50)) and rest[0].tokens == 2
    (left,) = view.advanced(0.2)
    assert left == pytest.approx(Due(0.3, 3.0, 1.0, 0.5, 0))
    assert list(view.advanced(9.0)) == []


def test_a_server_rests_without_streams_and_without_anything_due() -> None:
    assert server().rests
    assert server(due=(Due(7.0, 8),)).rests
    assert not server(due=(Due(0.1, 8),)).rests
    assert not server(rates=(8.0,)).rests


@pytest.mark.parametrize("utility", [NORMAL, URGENT])
def test_a_plan_is_worth_its_time_utility_less_the_price_of_waiting(utility: object) -> None:
    one = plan("r", utility)  # type: ignore[arg-type]
    for response_s in (0.0, 0.3, 0.7, 5.0):
        price = KAPPA * one.request.time_utility.beta * response_s  # type: ignore[attr-defined]
        expected = one.request.time_utility.clamped(response_s) - price  # type: ignore[attr-defined]
        assert one.worth(response_s) == pytest.approx(expected)


def test_only_tokens_without_kv_are_computed() -> None:
    kept = server(kept={("person", "talk"): 80})
    assert plan().to_compute(server()) == 60
    assert plan().to_compute(server(skill_sets={"drone": 0})) == 760
    assert question("p", "talk").to_compute(kept) == 20
    assert question("p").to_compute(kept) == 100
    assert question("p", "talk", 10).to_compute(kept) == 1


def test_a_view_takes_requests_of_any_worth_and_time() -> None:
    one = plan("r", TimeUtility(1.7e308, -1.0, 1.7e308)).due(0.0, server())
    assert (one.due_in_s, one.weight) == (MOST, MOST)
    assert server(due=(one, one)).due == (one, one)


def test_a_request_in_a_due_list_is_due_as_it_asks() -> None:
    assert plan("r", URGENT, 2.0).due(2.05, server()) == pytest.approx(Due(0.15, 8.0, 2.0, 0.3, 60))


@pytest.mark.parametrize(
    "changes",
    [
        {"steps_s": ()},
        {"steps_s": (0.02, 0.0)},
        {"row_s": -0.1},
        {"age_s": math.inf},
        {"rates": (math.nan,)},
        {"due": (Due(0.1, math.nan),)},
        {"due": (Due(0.1, 8.0, 1.0, 0.0),)},
        {"rates": (-1.0,)},
        {"max_rows": 0},
        {"due": (Due(0.1, -1.0),)},
        {"due": (Due(0.1, 8.0, -1.0),)},
    ],
)
def test_a_view_with_an_impossible_number_is_refused(changes: dict[str, object]) -> None:
    with pytest.raises(RequestError, match="the view of server 'a' has an impossible number"):
        server(**changes)  # type: ignore[arg-type]
