"""The ROS side of a replay: one node that asks for all agents of a trace and speaks for them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rclpy.qos import DurabilityPolicy
from std_msgs.msg import String

from timely_llm import msg, srv
from timely_llm.core.request import ExecutionReport, PlanRequest, ReportState
from timely_llm.ros import conversions, qos
from timely_llm.ros.client_node import ClientNode, Taker
from timely_llm.traces.bags import LINE_TOPIC


class ReplayNode(ClientNode):
    """A client's node that can also ask by topic, and publishes a trace's lines.

    Args:
        server: name of the server's node.
        namespace: of the server.
        domain: ROS domain; None: ROS_DOMAIN_ID.
        job_of: finds the open job of a request id; it takes segments and results.
        lines: of the trace; so many are kept for who listens late.
    """

    def __init__(
        self,
        server: str,
        namespace: str,
        domain: int | None,
        job_of: Callable[[str], Taker | None],
        lines: int,
    ) -> None:
        self._job_of = job_of
        self._lines_kept = lines
        super().__init__(server, namespace, domain, job_of)

    def _make(self, server: str, namespace: str) -> None:
        super()._make(server, namespace)
        node = self._node
        self._requests = node.create_publisher(
            msg.PlanRequest, f"{server}/plan_requests", qos.reliable()
        )
        profile = qos.reliable(self._lines_kept)
        profile.durability = DurabilityPolicy.TRANSIENT_LOCAL
        self._lines = node.create_publisher(String, LINE_TOPIC, profile)
        node.create_subscription(
            msg.PlanResult, f"{server}/results", self._on_result, qos.reliable()
        )
        self._cancel: Any = node.create_client(srv.CancelRequest, f"{server}/cancel_request")
        # Made last once more: who answers this one knows the others.
        node.destroy_client(self._list)
        self._list = node.create_client(srv.ListRequests, f"{server}/list_requests")

    @property
    def server_is_there(self) -> bool:
        """Whether the server can be asked, by action and by topic, and hears reports."""
        heard = (self._requests, self._reports)
        return (
            self._action.server_is_ready()
            and self._list.service_is_ready()
            and all(publisher.get_subscription_count() for publisher in heard)
        )

    def ask_by_topic(self, request: PlanRequest) -> None:
        """Publish a request; its segments and its result come by topic too."""
        message = conversions.request_message(request)
        message.max_tokens = 0
        self._requests.publish(message)

    def line(self, text: str) -> None:
        """Publish a line of the trace."""
        self._lines.publish(String(data=text))

    def alive(self, agent: str) -> None:
        """Tell the server that an agent is there."""
        self.report(ExecutionReport("", agent, ReportState.ALIVE))

    def ask_who_is_served(self, answered: Callable[[set[str]], None]) -> None:
        """Ask the server for the ids of the requests that it serves."""
        sent = self._list.call_async(srv.ListRequests.Request())
        sent.add_done_callback(lambda future: answered(set(future.result().request_ids)))

    def cancel(self, request_id: str) -> None:
        """Ask the server to end a request, whichever way it came."""
        self._cancel.call_async(srv.CancelRequest.Request(request_id=request_id))

    def _on_result(self, message: msg.PlanResult) -> None:
        job = self._job_of(message.request_id)
        if job is not None and job.agent == message.agent:
            job.finish(conversions.result_of(message, message.agent))
