"""What a serving loop says of itself."""

from __future__ import annotations

import pytest

from test.serving.scripted import FIND, PROFILE, Scene, request
from timely_llm.core.request import ChatMessage, ReportState, StreamRequest
from timely_llm.core.slo import Slo
from timely_llm.core.time_utility import URGENT, TimeUtility
from timely_llm.dispatch.contract import KAPPA, MOST
from timely_llm.dispatch.load import FIRST_GUESS, Load
from timely_llm.policies.registry import make_policy

QUESTION = (ChatMessage("user", "Why?"),)


def scene() -> tuple[Scene, Load]:
    plans = {f"r{number}": FIND for number in range(12)}
    made = Scene(
        {**plans, "r": FIND, "p": "Because it is."}, make_policy("deadline"), kv_tokens=4000
    )
    return made, Load(made.loop, "a")


def test_a_server_at_rest_has_nothing_due_and_all_its_memory() -> None:
    made, load = scene()
    view = load.view(0.0)
    assert (view.name, view.due, view.rates, view.requests) == ("a", (), (), 0)
    assert view.kv_tokens == view.free_kv_tokens == 4000 - made.prefix_tokens
    assert view.skill_sets == {"drone": made.prefix_tokens}
    assert view.rests and view.max_rows == made.loop.capacity.max_rows


def test_step_times_are_those_that_the_loop_has_learned() -> None:
    made, load = scene()
    for _ in range(3):
        made.loop.admit(request(f"r{_}"))
    made.turns(30)
    view = load.view(made.clock.now())
    for rows in (1, 4, 40):
        assert view.step_s(rows) == pytest.approx(PROFILE.step_s(rows), rel=0.1)


def test_a_request_is_due_until_its_text_is_complete() -> None:
    made, load = scene()
    made.loop.admit(request("r", URGENT, closed_loop=True))
    view = load.view(made.clock.now())
    (due,) = view.due
    assert (due.weight, due.tokens) == (2.0, FIRST_GUESS)
    assert (due.due_in_s, due.grace_s) == pytest.approx((0.2, 0.3))
    assert due.prompt_tokens > 1 and view.unstarted == {"r"} and view.requests == 1
    made.until_segments(1)
    made.report("r", ReportState.STARTED)
    later = load.view(made.clock.now())
    assert not later.unstarted and later.free_kv_tokens < later.kv_tokens
    assert [(one.grace_s, one.prompt_tokens) for one in later.due] in ([(1 / KAPPA, 0)], [])


def test_a_request_has_begun_when_its_plan_is_made_anew() -> None:
    made = Scene({"r": FIND + "..." + FIND}, make_policy("deadline"))
    load = Load(made.loop, "a")
    made.loop.admit(request("r", closed_loop=True))
    made.until_segments(1)
    made.report("r", ReportState.FAILED, value="wind")
    view = load.view(made.clock.now())
    assert (view.served, view.unstarted) == (("r",), frozenset())


def test_requests_with_any_worth_and_time_fit_into_a_view() -> None:
    made, load = scene()
    made.loop.admit(request("r", TimeUtility(1.7e308, 0.0, 1.7e308)))
    made.loop.admit(request("r1", TimeUtility(1.7e308, -1e-300, 1.7e308)))
    made.loop.admit(StreamRequest("p", "person", QUESTION, Slo(tpot_s=5e-324)))
    view = load.view(made.clock.now())
    assert len(view.due) == 3 and view.served == ("r", "r1", "p")
    assert max(view.due[-1][:3]) == MOST == view.rates[0]


def test_a_conversation_needs_its_rate_and_is_kept_for_its_next_turn() -> None:
    made, load = scene()
    made.loop.admit(StreamRequest("p", "person", QUESTION, conversation="talk"))
    view = load.view(made.clock.now())
    assert view.rates == (10.0,)
    assert (view.due[0].due_in_s, view.due[0].tokens) == pytest.approx((1.0, 1.0))
    made.run()
    kept = load.view(made.clock.now())
    assert kept.rates == () and list(kept.kept) == [("person", "talk")]
    assert kept.kept["person", "talk"] > 5


def test_lengths_of_segments_are_learned_from_view_to_view() -> None:
    made, load = scene()
    for number in range(12):
        made.loop.admit(request(f"r{number}"))
        made.clock.advance(1.0)
        load.view(made.clock.now())
        made.run()
        load.view(made.clock.now())
    made.loop.admit(request("r"))
    assert load.view(made.clock.now()).due[0].tokens != FIRST_GUESS
