"""Requests that no server has, and those that two have."""

from __future__ import annotations

import math

import pytest

from test.dispatch.front.fronts import BUSY, end, front, other, report, result, segment, sent, shown
from test.dispatch.views import plan, question, server
from timely_llm.core.request import ErrorCode, ReportState
from timely_llm.core.time_utility import URGENT
from timely_llm.dispatch.contract import GATHER_S
from timely_llm.dispatch.front.actions import Cancel, Send, Tell
from timely_llm.dispatch.front.front import Front
from timely_llm.dispatch.front.placement import Returned, Unsent


def test_a_burst_is_taken_when_it_has_ended() -> None:
    made = Unsent()
    made.gather(plan("r0", asked_s=1.0), 1.0)
    assert made.gathers and made.wake_s == 1.0 + GATHER_S and made.take_burst(1.0) == []
    assert [one.key for one in made.take_burst(made.wake_s)] == ["r0"]
    assert made.keys == [] and made.wake_s == math.inf


def test_a_request_comes_back_at_its_time() -> None:
    made = Unsent()
    made.bring_back(Returned(2.0, plan("r"), "a"))
    assert made.wake_s == 2.0 and made.take_returned(1.9) == [] and made.keys == ["r"]
    assert [one.server for one in made.take_returned(2.0)] == ["a"] and made.keys == []


def test_what_no_server_takes_waits_for_one_that_can() -> None:
    made = Unsent()
    made.place(plan("r"))
    assert made.take_unplaced(server(skill_sets={"arm": 5})) == []
    assert made.take_unplaced(server(active=False)) == [] and made.keys == ["r"]
    assert [one.key for one in made.take_unplaced(server())] == ["r"] and made.keys == []


def test_a_request_is_forgotten_wherever_it_is() -> None:
    made = Unsent()
    made.gather(plan("r0"), 0.0)
    made.place(plan("r1"))
    made.bring_back(Returned(2.0, plan("r2"), "a"))
    for number in range(3):
        made.remove(f"r{number}")
    assert made.keys == []


def hedged() -> tuple[Front, str, str]:
    """Return a front with a hedged request, and its two servers."""
    made = front(hedge=True)
    (_, first), (_, second) = sent(made.asked(plan("r", URGENT), 0.0))
    assert made.serves(first, "r") and made.serves(second, "r") and first != second
    return made, first, second


def test_only_urgent_plans_are_asked_of_two_servers() -> None:
    made = front(hedge=True)
    assert len(sent(made.asked(plan("r"), 0.0))) == 1
    assert len(sent(made.asked(question("p"), 0.0))) == 1
    assert len(sent(front().asked(plan("r", URGENT), 0.0))) == 1
    alone = front(server("a", due=BUSY), hedge=True)
    assert sent(alone.asked(plan("r", URGENT), 0.0)) == [("r", "a")]


@pytest.mark.parametrize("place", [0, 1])
def test_the_server_that_delivers_first_has_the_request(place: int) -> None:
    made, *both = hedged()
    winner, loser = both[place], both[1 - place]
    cancel, shows = made.segment(winner, segment(), 0.1)
    assert cancel == Cancel("r", loser) and shown([shows]) == [(0, 0)]
    assert made.segment(loser, segment(), 0.2) == [] and made.server_of("r") == winner
    assert made.heard(server(loser, served=("r",)), 0.3, 0.3) == [Cancel("r", loser)]


@pytest.mark.parametrize("place", [0, 1])
@pytest.mark.parametrize("how", ["ended", "lost", "forgotten", "withdrawn"])
def test_the_other_server_goes_on_alone(place: int, how: str) -> None:
    made, *both = hedged()
    gone, stays = both[place], both[1 - place]
    if how == "ended":
        assert made.ended(gone, result(ErrorCode.ENGINE_FAILED), 0.1) == []
    elif how == "lost":
        assert made.lost(gone, 0.1) == []
    elif place == 1:
        return  # the ledger has the first one only
    elif how == "forgotten":
        assert made.forgotten("r", gone, 0.1) == []
    else:
        made.withdrawn("r", gone, 0.1)
    assert made.server_of("r") == stays and not made.serves(gone, "r") and made.waiting == []
    assert made.segment(stays, segment(), 0.2) != []


def test_an_end_without_an_error_ends_the_other_server() -> None:
    made, first, second = hedged()
    actions = made.ended(second, result(), 0.1)
    assert actions[0] == Cancel("r", first) and end(actions).error_code is ErrorCode.NONE


def test_both_servers_get_reports_and_are_canceled() -> None:
    made, first, second = hedged()
    told = report(ReportState.STARTED, 0)
    assert made.report(told, 0.1) == [Tell(told, first), Tell(told, second)]
    assert made.cancel("r", 0.2) == [Cancel("r", first), Cancel("r", second)]
    assert made.server_of("r") == first and not made.serves(second, "r")


def test_a_lost_server_is_replaced_by_the_second_without_a_message() -> None:
    made, first, _ = hedged()
    assert not [one for one in made.lost(first, 0.1) if isinstance(one, Send)]
    assert other(first) == made.server_of("r")
