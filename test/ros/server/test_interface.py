"""What a client hears of its request, which a dispatcher may find while it asks its servers."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future
from typing import Any

import pytest
import rclpy
from rclpy.context import Context
from rclpy.executors import SingleThreadedExecutor
from rclpy.node import Node

from test.ros_domains import reserved_domain
from timely_llm import srv
from timely_llm.core.request import ErrorCode, PlanRequest, Result
from timely_llm.ros.server.interface import ServerInterface
from timely_llm.serving.server.face import RunningRequest

REQUEST = PlanRequest("p1", "rover", "drone", "Check for a cat.")


class Face:
    """What the interface asks of a dispatcher that finds a request while it asks for its result."""

    def __init__(self, finds: bool, ends: Result | None = None) -> None:
        self._found, self._finds, self._ends = False, finds, ends

    def serves(self, request_id: str) -> bool:
        return self._found

    def result(self, request_id: str) -> Future[Result | None]:
        self._found = self._finds
        return self._done(self._ends)

    def so_far(self, request_id: str) -> Future[RunningRequest | None]:
        return self._done(RunningRequest(REQUEST))

    def _done(self, value: Any) -> Future[Any]:
        future: Future[Any] = Future()
        future.set_result(value)
        return future


@pytest.fixture
def node() -> Iterator[Node]:
    context = Context()
    with reserved_domain() as domain:
        rclpy.init(context=context, domain_id=domain)
        made = rclpy.create_node("interface", context=context)
        yield made
        made.destroy_node()
        rclpy.shutdown(context=context)


def answer(node: Node, face: Any) -> srv.GetResult.Response:
    """Return what a client hears of the request."""
    interface = ServerInterface(node, lambda result: None)
    interface.serve(face)
    executor = SingleThreadedExecutor(context=node.context)
    executor.add_node(node)
    asked, response = srv.GetResult.Request(request_id="p1"), srv.GetResult.Response()
    task = executor.create_task(interface._get_result, asked, response)
    executor.spin_until_future_complete(task, timeout_sec=30.0)
    executor.shutdown()
    answered: srv.GetResult.Response = task.result()
    return answered


def test_a_request_that_was_found_while_servers_were_asked_is_served(node: Node) -> None:
    assert answer(node, Face(finds=True)).state == srv.GetResult.Response.SERVED


def test_a_request_that_no_server_knows_is_unknown(node: Node) -> None:
    assert answer(node, Face(finds=False)).state == srv.GetResult.Response.UNKNOWN


def test_a_result_of_a_server_counts(node: Node) -> None:
    ended = REQUEST.refused(ErrorCode.EXPIRED, "it waited too long")
    heard = answer(node, Face(finds=False, ends=ended))
    assert heard.state == srv.GetResult.Response.PLAN
    assert heard.plan.error_code == int(ErrorCode.EXPIRED)
