"""The links to plan servers over ROS, and the discovery of the servers in the ROS graph."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from rcl_interfaces.srv import GetParameters
from rclpy.event_handler import PublisherEventCallbacks, SubscriptionEventCallbacks
from rclpy.node import Node

from timely_llm import msg, srv
from timely_llm.core.errors import ConfigurationError, RequestError
from timely_llm.core.request import (
    ExecutionReport,
    PlanRequest,
    Request,
    Result,
    StreamRequest,
)
from timely_llm.core.text import quoted
from timely_llm.dispatch.link import Found
from timely_llm.dispatch.relay import Relay
from timely_llm.dispatch.round_trip import RoundTrip
from timely_llm.ros import conversions, qos
from timely_llm.ros.client.server_watch import ServerWatch
from timely_llm.ros.conversions import stamped
from timely_llm.ros.dispatch.delivery_thread import DeliveryThread
from timely_llm.ros.interface_number import PARAMETER
from timely_llm.ros.server.load import server_view

FIRST_RTT_S = 0.002
"""Seconds of a message there and back, until it is measured."""

LOAD = "timely_llm/msg/ServerLoad"

LOOK_S = 0.25
"""Period of looks at the graph, seconds."""

TICK_S = 0.02
"""Period of the links' looks at their servers, seconds."""

GONE_S = 30.0
"""A server without a publisher for this time is forgotten, seconds."""

LATE_S = 10.0
"""A server of the list that is not found in this time is named in the log, seconds."""


class ServerLink:
    """Carries requests to one plan server over ROS, and passes on what it sends.

    Args:
        node: the dispatcher's node.
        name: full name of the server's node.
        relay: takes what the server sends.
        deliveries: the thread in which segments and tokens come.
        say: takes a sentence for the log.

    Attributes:
        name: full name of the server's node.
        stats: its newest statistics.
    """

    def __init__(
        self,
        node: Node,
        name: str,
        relay: Relay,
        deliveries: DeliveryThread,
        say: Callable[[str], None],
    ) -> None:
        self.name = name
        self.stats = msg.ServerStats()
        self._node = node
        self._relay = relay
        self._say = say
        self._problem = ""
        self._refused = False
        self._round_trip = RoundTrip(FIRST_RTT_S)
        self._made_s = 0.0
        self._made = (0, 0)
        self._entities: list[Callable[[], object]] = []
        self._open: dict[Any, Any] = {}  # calls without a response, with their clients
        self._plans = self._publisher(msg.PlanRequest, "plan_requests")
        self._streams = self._publisher(msg.StreamRequest, "stream_requests")
        self._reports = self._publisher(msg.ExecutionReport, "execution_reports")
        self._cancel = self._client(srv.CancelRequest, "cancel_request")
        self._results = self._client(srv.GetResult, "get_result")
        self._requests = self._client(srv.GetRequests, "get_requests")
        self._segments = self._client(srv.GetSegments, "get_segments")
        self._skill_sets = self._client(srv.GetSkillSet, "get_skill_set")
        self._register = self._client(srv.RegisterSkillSet, "register_skill_set")
        self._unregister = self._client(srv.UnregisterSkillSet, "unregister_skill_set")
        self._clock = self._client(GetParameters, "get_parameters")
        self._watch = ServerWatch(node, name, lambda: None)
        for kind, topic, take, depth in (
            (msg.Segment, "segments", self._on_segment, qos.QUEUE),
            (msg.StreamChunk, "stream_chunks", self._on_chunk, qos.TOKENS),
        ):
            self._entities.append(deliveries.listen(kind, f"{name}/{topic}", take, depth))
        self._listen(msg.PlanResult, "results", self._on_plan_result)
        self._listen(msg.StreamResult, "stream_results", self._on_stream_result)
        self._listen(msg.ServerLoad, "load", self._on_load)
        self._listen(msg.ServerStats, "stats", self._on_stats)
        self._watch.renew()  # the last reader: a server that answers it knows the others

    def tick(self) -> None:
        """Look whether the server is there, and whether it is lost."""
        lost = self._watch.lost()
        if lost:
            self._forget_calls()
            self._relay.lost(self.name, lost)
        if self._problem:
            return
        try:
            if not self._watch.fits:
                self._watch.find(self._there)
        except ConfigurationError as error:
            self._problem = str(error)
            self._say(self._problem)
            return
        if self._watch.fits and self._watch.challenge:
            if not self._refused:
                self._refused = True
                self._say(
                    f"server {self.name} checks the keys of agents, and a dispatcher cannot sign"
                    " for them: start this server without agent_keys, or let its clients ask it"
                    " directly"
                )
            return
        now = time.monotonic()
        if self._watch.fits and self._round_trip.begins(now):
            self._call(self._clock, GetParameters.Request(names=[PARAMETER]), self._on_pong)

    def close(self) -> None:
        """Free the topics and services."""
        self._forget_calls()
        for free in self._entities:
            free()
        self._entities.clear()
        self._watch.close()

    # What the relay asks for.

    def send(self, request: Request) -> None:
        """Send a request."""
        if isinstance(request, StreamRequest):
            message = conversions.stream_request_message(request)
            self._streams.publish(stamped(self._node, message))
        elif isinstance(request, PlanRequest):
            message = conversions.PLAN_REQUEST.message(request)
            self._plans.publish(stamped(self._node, message))

    def report(self, report: ExecutionReport) -> None:
        """Send a robot's report."""
        message = conversions.EXECUTION_REPORT.message(report)
        self._reports.publish(stamped(self._node, message))

    def cancel(self, request_id: str) -> None:
        """End a request."""
        self._call(self._cancel, srv.CancelRequest.Request(request_id=request_id))

    def withdraw(self, request_id: str, stays: Callable[[], None]) -> None:
        """End a request unless it has begun; see `Link`."""
        asked = srv.CancelRequest.Request(request_id=request_id, unless_begun=True)
        self._call(self._cancel, asked, lambda answer: None if answer.canceled else stays())

    def inquire(self, request_id: str, answered: Callable[[Result | None], None]) -> None:
        """Ask how a request ended; see `Link`."""

        def take(response: srv.GetResult.Response) -> None:
            if response.state != response.SERVED:
                answered(conversions.result_in(response))

        self._call(self._results, srv.GetResult.Request(request_id=request_id), take)

    def find(self, answered: Callable[[Sequence[Found]], None]) -> None:
        """Ask for the requests that a dispatcher of this name has sent."""
        me = self._node.get_fully_qualified_name()
        asked = srv.GetRequests.Request(dispatcher=me)
        self._call(self._requests, asked, lambda response: self._find_plans(response, answered))

    def skill_set(self, name: str, answered: Callable[[str], None]) -> None:
        """Ask for the YAML text of a registered skill set; empty: there is none."""
        asked = srv.GetSkillSet.Request(name=name)
        self._call(self._skill_sets, asked, lambda response: answered(response.yaml))

    def register(self, text: str, answered: Callable[[str, int, str], None]) -> None:
        """Register a skill set; see `Link`."""

        def take(response: srv.RegisterSkillSet.Response) -> None:
            answered(response.name, response.prompt_tokens, response.error_msg)

        self._call(self._register, srv.RegisterSkillSet.Request(yaml=text), take)

    def unregister(self, name: str, answered: Callable[[str], None]) -> None:
        """Forget a skill set; see `Link`."""
        asked = srv.UnregisterSkillSet.Request(name=name)
        self._call(self._unregister, asked, lambda response: answered(response.error_msg))

    # What the server sends.

    def _on_load(self, message: msg.ServerLoad) -> None:
        if not self._watch.fits or self._watch.challenge:
            return  # it came late, or before the server knows all readers of this node
        now, made = time.monotonic(), (message.stamp.sec, message.stamp.nanosec)
        if made != self._made:  # in a long step the last message comes again
            self._made, self._made_s = made, now
        try:
            view = server_view(message, self.name, self._round_trip.seconds, now - self._made_s)
        except RequestError as error:
            self._say(f"the load of server {self.name} cannot be used: {error}")
            return
        self._relay.heard(view, message.life)

    def _on_segment(self, message: msg.Segment) -> None:
        self._relay.segment(self.name, conversions.SEGMENT.read(message))

    def _on_chunk(self, message: msg.StreamChunk) -> None:
        self._relay.chunk(self.name, conversions.STREAM_CHUNK.read(message))

    def _on_plan_result(self, message: msg.PlanResult) -> None:
        self._relay.ended(self.name, conversions.PLAN_RESULT.read(message))

    def _on_stream_result(self, message: msg.StreamResult) -> None:
        self._relay.ended(self.name, conversions.STREAM_RESULT.read(message))

    def _on_stats(self, message: msg.ServerStats) -> None:
        self.stats = message

    def _on_pong(self, _: GetParameters.Response) -> None:
        self._round_trip.answered(time.monotonic())

    def _find_plans(
        self, response: srv.GetRequests.Response, answered: Callable[[Sequence[Found]], None]
    ) -> None:
        """Ask for the segments of the plans that were found."""
        found: list[Found] = []
        left: list[PlanRequest] = []
        try:
            running = conversions.requests_in(response)
        except RequestError as error:
            self._say(f"the requests of server {self.name} cannot be read: {error}")
            return
        for one in running:
            if isinstance(one.request, PlanRequest):
                left.append(one.request)
            elif isinstance(one.request, StreamRequest):
                found.append(Found(one.request, text=one.text, tokens=one.made))

        def go_on() -> None:
            if not left:
                answered(found)
                return
            asked = srv.GetSegments.Request(request_id=left[0].request_id)
            self._call(self._segments, asked, take)

        def take(segments: srv.GetSegments.Response) -> None:
            request = left.pop(0)
            if not segments.error_code:  # else it has just ended
                read = tuple(map(conversions.SEGMENT.read, segments.segments))
                found.append(Found(request, read))
            go_on()

        go_on()

    # ROS. rclpy's default callbacks of events are left out: its executors go through the handlers
    # of all events before each wait, which takes a millisecond with three servers.

    def _there(self) -> bool:
        """Return whether all that the link uses of the server is found."""
        publishers = (self._plans, self._streams, self._reports)
        return (
            self._requests.service_is_ready()
            and self._segments.service_is_ready()
            and all(one.get_subscription_count() for one in publishers)
        )

    def _publisher(self, kind: Any, topic: str) -> Any:
        made = self._node.create_publisher(
            kind, f"{self.name}/{topic}", qos.reliable(qos.TOKENS),
            event_callbacks=PublisherEventCallbacks(use_default_callbacks=False),
        )  # fmt: skip
        self._entities.append(lambda: self._node.destroy_publisher(made))
        return made

    def _client(self, kind: Any, name: str) -> Any:
        made: Any = self._node.create_client(kind, f"{self.name}/{name}")
        self._entities.append(lambda: self._node.destroy_client(made))
        return made

    def _listen(self, kind: Any, topic: str, take: Callable[[Any], None]) -> None:
        made = self._node.create_subscription(
            kind, f"{self.name}/{topic}", take, qos.reliable(),
            event_callbacks=SubscriptionEventCallbacks(use_default_callbacks=False),
        )  # fmt: skip
        self._entities.append(lambda: self._node.destroy_subscription(made))

    def _forget_calls(self) -> None:
        for asked, client in list(self._open.items()):
            client.remove_pending_request(asked)
        self._open.clear()

    def _call(
        self, client: Any, request: Any, take: Callable[[Any], None] = lambda response: None
    ) -> None:
        """Call a service; `take` gets the response, if one comes."""
        asked = client.call_async(request)
        self._open[asked] = client

        def done(future: Any) -> None:
            self._open.pop(future, None)
            if not future.cancelled() and (response := future.result()) is not None:
                take(response)

        asked.add_done_callback(done)


class Discovery:
    """Makes a link to each server that is found, and ends those of servers that are gone.

    Servers are the nodes that publish a load in the dispatcher's namespace or below it.

    Args:
        node: the dispatcher's node.
        relay: takes the servers.
        deliveries: the thread in which segments and tokens come.
        only: full names of the servers to take; empty: all.
        say: takes a sentence for the log.
    """

    def __init__(
        self,
        node: Node,
        relay: Relay,
        deliveries: DeliveryThread,
        only: Sequence[str],
        say: Callable[[str], None],
    ) -> None:
        self._node = node
        self._relay = relay
        self._deliveries = deliveries
        self._only = frozenset(only)
        self._say = say
        self._me = node.get_fully_qualified_name()
        self._below = node.get_namespace().rstrip("/") + "/"
        self._links: dict[str, ServerLink] = {}
        self._seen_s: dict[str, float] = {}
        self._began_s = time.monotonic()
        self._look_s = self._tick_s = 0.0
        self._missed = not only

    @property
    def links(self) -> Sequence[ServerLink]:
        """The links to all servers that were found."""
        return tuple(self._links.values())

    def tick(self) -> None:
        """Look at the graph if it is time, and let the links look at their servers."""
        now = time.monotonic()
        if now >= self._look_s:
            self._look_s = now + LOOK_S
            self._look(now)
        if now >= self._tick_s:
            self._tick_s = now + TICK_S
            for link in self._links.values():
                link.tick()

    def _look(self, now: float) -> None:
        for topic, types in self._node.get_topic_names_and_types():
            name = topic.removesuffix("/load")
            if LOAD not in types or name == topic or not self._takes(name):
                continue
            if not self._node.count_publishers(topic):
                continue
            self._seen_s[name] = now
            if name not in self._links:
                link = ServerLink(self._node, name, self._relay, self._deliveries, self._say)
                self._links[name] = link
                self._relay.joined(name, link)
        for name in [name for name, seen_s in self._seen_s.items() if now - seen_s > GONE_S]:
            del self._seen_s[name], self._links[name]
            self._relay.left(name)
        if not self._missed and now - self._began_s > LATE_S:
            self._missed = True
            for name in sorted(self._only - self._links.keys()):
                self._say(f"the server {quoted(name)} of the parameter servers is not there yet")

    def _takes(self, name: str) -> bool:
        if self._only:
            return name in self._only
        return name != self._me and name.startswith(self._below)
