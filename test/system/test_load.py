"""What a plan server offers a dispatcher, as a dispatcher sees it: a real process."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from lifecycle_msgs.msg import Transition
from lifecycle_msgs.srv import ChangeState

from test.system.conftest import Start
from test.system.ros_client import FIND, LONG, serving
from test.system.ros_talker import SLOW, Talker
from timely_llm import msg, srv
from timely_llm.core.request import ErrorCode, ReportState
from timely_llm.ros.conversions import requests_in
from timely_llm.ros.server.load import server_view

FRONT = "/front"


class Dispatcher(Talker):
    """A talker that also listens to what the server says of itself."""

    def __init__(self, domain: int) -> None:
        super().__init__(domain)
        self.loads: list[msg.ServerLoad] = []
        self.node.create_subscription(msg.ServerLoad, "plan_server/load", self.loads.append, 10)

    def begun(self) -> dict[str, bool]:
        """Return the requests of the newest load: whether each has begun."""
        return {one.request_id: one.begun for one in self.loads[-1].requests}

    def withdraw(self, request_id: str) -> Any:
        return self.call(
            srv.CancelRequest, "cancel_request", request_id=request_id, unless_begun=True
        )

    def requests_of(self, dispatcher: str) -> Any:
        return self.call(srv.GetRequests, "get_requests", dispatcher=dispatcher)


@pytest.fixture
def dispatcher(start: Start, domain: int) -> Iterator[Dispatcher]:
    one_at_a_time = {"policy": "stream", "policy_options": "['rows=1']"}
    with serving(start, Dispatcher, domain, **SLOW, **one_at_a_time) as made:
        made.until(lambda: bool(made.loads))
        yield made


def test_a_dispatcher_sees_its_requests_and_takes_back_what_has_not_begun(
    dispatcher: Dispatcher,
) -> None:
    first = dispatcher.loads[-1]
    assert (first.active, first.requests, len(first.life)) == (True, [], 32)
    dispatcher.stream_requests.publish(
        msg.StreamRequest(
            request_id="t", agent="ann", prompt="Why?", first_token=5, dispatcher=FRONT
        )
    )
    dispatcher.until(lambda: len(dispatcher.tokens_of("t")) >= 2)
    for name in ("q", "other"):
        front = FRONT if name == "q" else ""
        dispatcher.requests.publish(dispatcher.request(name, FIND, dispatcher=front))
    dispatcher.until(lambda: dispatcher.begun() == {"t": True, "q": False, "other": False})
    view = server_view(dispatcher.loads[-1], "a")
    assert (view.served, view.unstarted) == (("t", "q", "other"), frozenset(("q", "other")))
    assert 0.0 < view.step_s(1) <= view.step_s(40)
    assert view.skill_sets["drone"] > 100 and 0 < view.free_kv_tokens < view.kv_tokens
    answer, plan = reversed(requests_in(dispatcher.requests_of(FRONT)))
    assert (plan.request.request_id, plan.made, plan.text) == ("q", 0, "")
    assert (answer.request.request_id, answer.request.dispatcher) == ("t", FRONT)
    dispatcher.until(lambda: len(dispatcher.tokens_of("t")) > answer.made)
    tokens = dispatcher.tokens_of("t")
    assert [one.index for one in tokens] == list(range(5, 5 + len(tokens)))
    assert answer.text == "".join(one.text for one in tokens[: answer.made])
    assert requests_in(dispatcher.requests_of("")) == []
    assert dispatcher.withdraw("q").canceled
    refused = dispatcher.withdraw("t")
    assert not refused.canceled
    assert refused.error_msg == "request 't' has begun, and goes on here"
    assert dispatcher.withdraw("q").error_msg == "no request 'q' is being served"
    dispatcher.until(lambda: list(dispatcher.begun()) == ["t", "other"])
    assert {load.life for load in dispatcher.loads} == {first.life}


def test_a_plan_goes_on_with_the_epoch_of_its_request(dispatcher: Dispatcher) -> None:
    dispatcher.requests.publish(dispatcher.request("r", LONG, epoch=3, closed_loop=True))
    dispatcher.until(lambda: bool(dispatcher.of("r")))
    for epoch in (0, 3):  # the first is about the plan of another server
        state = ReportState.RETURNED if epoch else ReportState.FAILED
        dispatcher.reports.publish(
            msg.ExecutionReport(request_id="r", agent="tester", state=int(state), epoch=epoch)
        )
    dispatcher.until(lambda: not dispatcher.begun())
    ended = dispatcher.call(srv.GetResult, "get_result", request_id="r").plan
    assert (ended.error_code, ended.epoch) == (ErrorCode.NONE, 3)
    assert {one.epoch for one in dispatcher.of("r")} == {3}


def test_a_server_that_drains_says_so_and_begins_a_new_life_when_it_is_configured(
    dispatcher: Dispatcher,
) -> None:
    life = dispatcher.loads[-1].life
    dispatcher.requests.publish(dispatcher.request("r", LONG))
    dispatcher.until(lambda: "r" in dispatcher.begun())
    _change(dispatcher, Transition.TRANSITION_DEACTIVATE)
    dispatcher.until(lambda: not dispatcher.loads[-1].active)
    assert "r" in dispatcher.begun(), "it finishes what it has"
    _change(dispatcher, Transition.TRANSITION_CLEANUP)
    _change(dispatcher, Transition.TRANSITION_CONFIGURE)
    dispatcher.until(lambda: dispatcher.loads[-1].life != life)
    assert (dispatcher.loads[-1].active, dispatcher.begun()) == (False, {})
    _change(dispatcher, Transition.TRANSITION_ACTIVATE)
    dispatcher.until(lambda: dispatcher.loads[-1].active)


def _change(dispatcher: Dispatcher, transition: int) -> None:
    asked = {"transition": Transition(id=transition)}
    assert dispatcher.call(ChangeState, "change_state", **asked).success
