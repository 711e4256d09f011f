"""The ROS side of a replay: one node that asks for all agents of a trace and speaks for them."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from rclpy.action import ActionClient
from rclpy.qos import DurabilityPolicy
from std_msgs.msg import String

from timely_llm import msg, srv
from timely_llm.action import Converse
from timely_llm.core.errors import ConfigurationError
from timely_llm.core.request import ExecutionReport, PlanRequest, ReportState
from timely_llm.core.stream import StreamRequest
from timely_llm.ros import conversions, qos, stream_conversions
from timely_llm.ros.client_node import ClientNode, Taker
from timely_llm.ros.replayed_talk import ReplayedTalk
from timely_llm.traces.bags import LINE_TOPIC

POLL_S = 0.1
"""Whether a replay shall go on is asked at least this often."""
ANSWER_S = 0.5
"""A server that is just being discovered may lose a question: ask again after so long."""


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
        job_of: Callable[[str], Taker | None],
        talk_of: Callable[[str], ReplayedTalk | None],
        lines: int,
    ) -> None:
        self._job_of = job_of
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
        node.create_subscription(
            msg.PlanResult, f"{server}/results", self._on_result, qos.reliable()
        )
        self._converse: ActionClient[Any, Any, Any] = ActionClient(
            node, Converse, "converse", **qos.of_action("sub")
        )
        self._streams = node.create_publisher(
            msg.StreamRequest, f"{server}/stream_requests", qos.reliable()
        )
        node.create_subscription(
            msg.StreamChunk, f"{server}/stream_chunks", self._on_chunk, qos.reliable(qos.TOKENS)
        )
        node.create_subscription(
            msg.StreamResult, f"{server}/stream_results", self._on_talk_result, qos.reliable()
        )
        self._cancel: Any = node.create_client(srv.CancelRequest, f"{server}/cancel_request")
        # Made last once more: who answers this one knows the others.
        node.destroy_client(self._list)
        self._list = node.create_client(srv.ListRequests, f"{server}/list_requests")

    @property
    def server_is_there(self) -> bool:
        """Whether the server can be asked, by action and by topic, and hears reports."""
        heard = (self._requests, self._streams, self._reports)
        return (
            self._action.server_is_ready()
            and self._converse.server_is_ready()
            and self._list.service_is_ready()
            and all(publisher.get_subscription_count() for publisher in heard)
        )

    def find(self, timeout_s: float, go_on: Callable[[], bool]) -> None:
        """Wait until the server answers, and what both say reaches the other.

        Raises:
            ConfigurationError: it does not in time.
        """
        answers: list[set[str]] = []
        end_s, ask_s = time.monotonic() + timeout_s, 0.0
        while not answers and go_on():
            now = time.monotonic()
            if now >= end_s:
                raise ConfigurationError(
                    f"no plan server {self.server} answered within {timeout_s:g} s: is it running, "
                    "in the same ROS_DOMAIN_ID?"
                )
            if now >= ask_s and self.server_is_there:
                self.ask_who_is_served(answers.append)
                ask_s = now + ANSWER_S
            self.spin(min(POLL_S, end_s - now))

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

    def _on_result(self, message: msg.PlanResult) -> None:
        job = self._job_of(message.request_id)
        if job is not None and job.agent == message.agent:
            job.finish(conversions.result_of(message, message.agent))

    def _on_chunk(self, message: msg.StreamChunk) -> None:
        talk = self._talk_of(message.request_id)
        if talk is not None and talk.agent == message.agent:
            talk.offer(stream_conversions.chunk_of(message))

    def _on_talk_result(self, message: msg.StreamResult) -> None:
        talk = self._talk_of(message.request_id)
        if talk is not None and talk.agent == message.agent:
            talk.finish(stream_conversions.stream_result_of(message, message.agent))
