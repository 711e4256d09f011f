"""The ROS side of a replay: one node that asks for all agents of a trace and speaks for them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rclpy.action import ActionClient
from rclpy.qos import DurabilityPolicy
from std_msgs.msg import String

from timely_llm import msg, srv
from timely_llm.action import Converse
from timely_llm.core.request import ExecutionReport, PlanRequest, ReportState
from timely_llm.core.segment import Segment
from timely_llm.core.stream import StreamChunk, StreamRequest
from timely_llm.ros import conversions, qos, stream_conversions
from timely_llm.ros.asking_node import Taker
from timely_llm.ros.client_node import ClientNode
from timely_llm.traces.bags import LINE_TOPIC


class ReplayNode(ClientNode):
    """A client's node that can also ask by topic, and publishes a trace's lines.

    Args:
        server: name of the server's node.
        namespace: of the server.
        domain: ROS domain; None: ROS_DOMAIN_ID.
        job_of: finds the open job of a request id; it takes segments and results.
        talk_of: finds the open conversation of a request id; it takes tokens and results.
        lines: of the trace; so many are kept for who listens late.
    """

    def __init__(
        self,
        server: str,
        namespace: str,
        domain: int | None,
        job_of: Callable[[str], Taker[Segment] | None],
        talk_of: Callable[[str], Taker[StreamChunk] | None],
        lines: int,
    ) -> None:
        self._talk_of = talk_of
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
        self._hear(
            msg.PlanResult, f"{server}/results", self._taker_of,
            lambda job, message: job.finish(conversions.result_of(message, message.agent)),
        )  # fmt: skip
        self._converse: ActionClient[Any, Any, Any] = ActionClient(
            node, Converse, "converse", **qos.of_action("sub")
        )
        self._streams = node.create_publisher(
            msg.StreamRequest, f"{server}/stream_requests", qos.reliable()
        )
        self._hear(
            msg.StreamChunk, f"{server}/stream_chunks", self._talk_of,
            lambda talk, message: talk.offer(stream_conversions.chunk_of(message)), qos.TOKENS,
        )  # fmt: skip
        self._hear(
            msg.StreamResult, f"{server}/stream_results", self._talk_of,
            lambda talk, message: talk.finish(
                stream_conversions.stream_result_of(message, message.agent)
            ),
        )  # fmt: skip
        self._cancel: Any = node.create_client(srv.CancelRequest, f"{server}/cancel_request")
        # Made last once more: who answers this one knows the others.
        node.destroy_client(self._list)
        self._list = node.create_client(srv.ListRequests, f"{server}/list_requests")

    @property
    def server_is_there(self) -> bool:
        """Whether the server can be asked, by action and by topic, and hears reports."""
        heard = (self._requests, self._streams, self._reports)
        return (
            super().server_is_there
            and self._converse.server_is_ready()
            and all(publisher.get_subscription_count() for publisher in heard)
        )

    def ask_by_topic(self, request: PlanRequest) -> None:
        """Publish a request; its segments and its result come by topic too."""
        message = conversions.request_message(request)
        message.max_tokens = 0
        self._requests.publish(message)

    def converse(self, request: StreamRequest) -> None:
        """Send a goal; its tokens and its result come by topic."""
        fields = stream_conversions.request_fields(request)
        slo = stream_conversions.slo_fields(request.slo)
        self._converse.send_goal_async(Converse.Goal(**fields, **slo))

    def converse_by_topic(self, request: StreamRequest) -> None:
        """Publish the request for an answer."""
        self._streams.publish(stream_conversions.stream_request_message(request))

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
