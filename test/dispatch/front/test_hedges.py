"""Urgent plans at two servers."""

from __future__ import annotations

import pytest

from test.dispatch.front.fronts import BUSY, end, front, other, report, result, segment, sent, shown
from test.dispatch.views import plan, question, server
from timely_llm.core.request import ErrorCode, ReportState
from timely_llm.core.time_utility import URGENT
from timely_llm.dispatch.front.actions import Cancel, Send, Tell
from timely_llm.dispatch.front.front import Front


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
