"""Most worth: gains, what others lose, and what is computed again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from test.dispatch.views import plan, question, server, some_servers, some_waiting
from test.examples import examples
from timely_llm.core.time_utility import NORMAL, URGENT, TimeUtility
from timely_llm.dispatch.assign.rules import STALE_S, Forecast, MostWorth
from timely_llm.dispatch.contract import Due, ServerView, Waiting


def names(waiting: list[Waiting], *servers: ServerView) -> list[str]:
    return [name for _, name in MostWorth().assign(0.0, waiting, servers)]


@examples(150)
@given(
    st.integers(1, 40), st.floats(0.001, 0.2), st.floats(0.0, 0.02), st.floats(0.1, 10.0),
    st.booleans(),
)  # fmt: skip
def test_a_server_that_is_twice_as_fast_gets_no_less(
    number: int, step_s: float, row_s: float, worth: float, talks: bool
) -> None:
    patient = TimeUtility(worth, -worth / 10, 10.0)
    burst = [
        question(f"p{n}", ttft_s=10.0) if talks else plan(f"r{n}", patient) for n in range(number)
    ]
    counts = Counter(
        names(burst, server("fast", step_s / 2, row_s / 2), server("slow", step_s, row_s))
    )
    assert counts["fast"] >= counts["slow"]


def test_what_comes_too_late_anyhow_goes_where_it_delays_nothing() -> None:
    burst = [plan(f"r{n}", URGENT) for n in range(27)]
    made = names(burst, server("fast", 0.0312, 0.0), server("slow", 0.0625, 0.0))
    assert made.count("slow") > made.count("fast"), "the slow one makes none of them in time"


def test_equal_servers_get_equal_shares() -> None:
    burst = [plan(f"r{n}", URGENT if n % 3 == 0 else NORMAL) for n in range(24)]
    made = MostWorth().assign(0.0, burst, [server(name) for name in "abc"])
    assert set(Counter(name for _, name in made).values()) == {8}
    urgent = Counter(name for key, name in made if int(key[1:]) % 3 == 0)
    assert max(urgent.values()) - min(urgent.values()) <= 1


def test_the_most_urgent_request_is_placed_first() -> None:
    made = MostWorth().assign(0.0, [plan("slow"), plan("soon", URGENT)], [server()])
    assert [key for key, _ in made] == ["soon", "slow"]


def test_a_request_avoids_a_server_where_it_makes_others_late() -> None:
    soon = Due(0.16, 8.0, 1.0, 0.5)
    busy, slower = server("busy", due=(soon,) * 4), server("slower", 0.025)
    assert names([plan()], server("busy"), slower) == ["busy"]
    assert names([plan()], busy, slower) == ["slower"]


def test_a_conversation_returns_to_its_kv_unless_that_is_too_late() -> None:
    kept = server("kept", kept={("person", "talk"): 2000})
    later = question("p", "talk", prompt_tokens=2100)
    assert names([later], server("a"), kept) == ["kept"]
    assert names([question("p")], server("a"), kept) == ["a"]
    queue = (Due(0.1, 8.0, 1.0, 0.5, 60_000),)
    busy = server("kept", kept={("person", "talk"): 2000}, due=queue)
    assert names([later], server("a"), busy) == ["a"]


def test_a_pinned_prefix_is_worth_the_time_to_compute_it() -> None:
    assert names([plan()], server("a", skill_sets={"drone": 0}), server("b")) == ["b"]


def test_a_silent_server_gets_requests_only_if_there_is_no_other() -> None:
    silent = server("a", step_s=0.001, age_s=STALE_S + 0.1)
    assert names([plan()], silent, server("b")) == ["b"]
    assert names([plan()], silent) == ["a"]


def test_conversations_go_where_rows_are_cheap() -> None:
    talks = [question(f"p{n}") for n in range(12)]
    cheap, dear = server("cheap", 0.022, 0.0002), server("dear", 0.018, 0.009)
    assert Counter(names(talks, cheap, dear))["cheap"] == 12


@examples(100)
@given(some_waiting(), some_servers(), st.data())
def test_what_a_forecast_knows_of_before_is_what_it_computes_anew(
    waiting: list[Waiting], servers: list[ServerView], data: st.DataObject
) -> None:
    for view in servers:
        asked, new = Forecast(view), Forecast(view)
        for one in waiting:
            _offer(asked, one)
            if data.draw(st.booleans()):
                for forecast in (asked, new):
                    forecast.remove(one.due(0.0, view))
            for forecast in (asked, new):
                forecast.add(one, 0.0)
        for one in waiting:
            assert _offer(asked, one) == _offer(new, one)
            assert new.least_cost(one, new.prompt_s(one)) <= _offer(new, one)[1]


def _offer(forecast: Forecast, one: Waiting) -> tuple[float, float]:
    prompt_s = forecast.prompt_s(one)
    return forecast.response_s(one, prompt_s), forecast.cost(one, prompt_s)


@pytest.mark.parametrize(("requests", "servers"), [(10, 4), (40, 4), (40, 16)])
def test_each_further_request_of_a_kind_asks_one_server_again(
    requests: int, servers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: Counter[str] = Counter()
    for name in ("response_s", "cost"):
        monkeypatch.setattr(Forecast, name, _counted(getattr(Forecast, name), name, asked))
    names([plan(f"r{n}") for n in range(requests)], *(server(f"s{n}") for n in range(servers)))
    assert asked["response_s"] == servers + requests - 1
    assert asked["cost"] <= servers + requests - 1


def _counted(method: Callable[..., float], name: str, counts: Counter[str]) -> Callable[..., float]:
    def counted(*args: Any) -> float:
        counts[name] += 1
        return method(*args)

    return counted
