"""Requests that no server has."""

from __future__ import annotations

import math

from test.dispatch.views import plan, server
from timely_llm.dispatch.contract import GATHER_S
from timely_llm.dispatch.front.unsent import Returned, Unsent


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
