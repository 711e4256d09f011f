"""A dispatcher that was killed and started again serves at once, and goes on with what runs."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from test.system.conftest import Process, Start
from test.system.ros_client import PATIENT, Client
from timely_llm import srv

DISPATCHER = "dispatch.node"
AGAIN_S = 1.0
"""Period of a question that a dispatcher which is just being found may not get, seconds."""


@pytest.fixture
def dispatcher(start: Start) -> Iterator[Process]:
    server = start("plan_server", "-r", "__ns:=/s1", **PATIENT)
    made = start(DISPATCHER, name_check_s=0.0)
    yield made
    made.stop()
    server.stop()


@pytest.fixture
def client(dispatcher: Process, domain: int) -> Iterator[Client]:
    made = Client(domain)
    made.wait_for_action()
    made.until(lambda: "server /s1/plan_server joins" in dispatcher.output)
    yield made
    made.close()


def first_answer(client: Client, kind: Any, name: str, request: Any) -> Any:
    """Call until a service answers; what a killed process has left in the graph does not."""
    caller: Any = client.node.create_client(kind, f"plan_server/{name}")
    answers: list[Any] = []
    asked_s = 0.0

    def answered() -> bool:
        nonlocal asked_s
        if time.monotonic() > asked_s + AGAIN_S:
            asked_s = time.monotonic()
            answers.append(caller.call_async(request))
        return any(answer.done() for answer in answers)

    client.until(answered)
    client.node.destroy_client(caller)
    return next(answer.result() for answer in answers if answer.done())


@pytest.mark.counted
def test_a_new_dispatcher_refuses_nothing_and_goes_on(
    start: Start, client: Client, dispatcher: Process
) -> None:
    asked = srv.SubmitPlan.Request(request=client.request("before", closed_loop=True))
    asked.request.skill_set = "patient"
    assert not first_answer(client, srv.SubmitPlan, "submit_plan", asked).error_msg
    client.until(lambda: any(one.request_id == "before" for one in client.segments))
    dispatcher.popen.kill()
    dispatcher.wait(10)
    later = start(DISPATCHER, name_check_s=0.0)
    client.until(lambda: "ready: " in later.output)
    asked.request.request_id = "after"
    assert not first_answer(client, srv.SubmitPlan, "submit_plan", asked).error_msg

    def served() -> set[str]:
        listed = first_answer(client, srv.ListRequests, "list_requests", srv.ListRequests.Request())
        return {one.request_id for one in listed.requests}

    client.until(lambda: served() == {"before", "after"})
    later.stop()
