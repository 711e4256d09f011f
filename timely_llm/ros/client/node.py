"""The ROS node of a client: one action of a server, reports and services."""

from __future__ import annotations

import contextlib
import math
import time
import uuid
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, ClassVar, Generic, Protocol, TypeVar

import rclpy
from rclpy.context import Context
from rclpy.exceptions import InvalidHandle
from rclpy.executors import SingleThreadedExecutor
from rclpy.parameter import Parameter
from rclpy.signals import SignalHandlerOptions

from timely_llm import msg, srv
from timely_llm.action import Converse, Plan
from timely_llm.core.errors import ConfigurationError
from timely_llm.core.request import (
    ExecutionReport,
    PlanRequest,
    Request,
    StreamChunk,
    StreamRequest,
)
from timely_llm.core.segment import Segment
from timely_llm.core.text import quoted
from timely_llm.identity.signature import Signer
from timely_llm.ros import conversions, qos
from timely_llm.ros.client.goal_client import RequestClient, SentGoal
from timely_llm.ros.client.inquiries import FOLLOWED_S, SURE_S, Inquiries
from timely_llm.ros.client.server_watch import ServerWatch, not_found
from timely_llm.ros.conversions import (
    PLAN_REQUEST,
    SEGMENT,
    STREAM_CHUNK,
    stamped,
)
from timely_llm.ros.guarded import Guarded
from timely_llm.ros.identity.messages import sign
from timely_llm.ros.identity.server_check import ServerCheck
from timely_llm.ros.process import check_security, reason
from timely_llm.ros.simulation import Simulation

POLL_S = 0.1
MOST_HELD = 1024
"""Signed reports that wait for a server that may be another one."""
LINGER_S = 0.5
"""Time that a node stays after its last report, seconds: readers lose what they have not taken."""
AnyPiece = TypeVar("AnyPiece", contravariant=True)
AnyMessage = TypeVar("AnyMessage")
AnyListener = TypeVar("AnyListener", bound="ResultListener[Any]")


class ResultListener(Protocol[AnyPiece]):
    """Takes the segments or chunks of a request, each at least once, and its result."""

    @property
    def agent(self) -> str:
        """The robot or person of the request."""
        ...

    def offer(self, piece: AnyPiece) -> None:
        """Take a segment or chunk."""
        ...

    def finish(self, result: Any) -> None:
        """Take the result."""
        ...

    def lose(self, reason: str) -> None:
        """End the request: the server is gone, or has forgotten it."""
        ...


class RequestNode(ABC, Generic[AnyListener]):
    """A node in a context of its own, with one action of a server, reports and one service.

    Args:
        server: name of the server's node.
        namespace: of the server.
        domain: ROS domain; None: ROS_DOMAIN_ID.
        listener_of: returns the listener of an open request, by its id.
        use_sim_time: the agent's time is that of /clock.
        signer: signs what speaks for the agent; None: it is not signed.
        accept_unsigned: with a signer, take what a server without keys sends too.

    Attributes:
        ACTION, NAME: the action, its type and its name below the server's.
        check: drops what the server did not sign.
        server: full name of the server's node.
        simulation: the agent's time.

    Raises:
        ConfigurationError: ROS cannot use these names.
    """

    ACTION: ClassVar[Any]
    NAME: ClassVar[str]

    def __init__(
        self,
        server: str,
        namespace: str,
        domain: int | None,
        listener_of: Callable[[str], AnyListener | None],
        use_sim_time: bool = False,
        signer: Signer | None = None,
        accept_unsigned: bool = False,
    ) -> None:
        self._listener_of = listener_of
        self._use_sim_time = use_sim_time
        self._signer = signer
        self.check = ServerCheck(signer, lambda: self.watch.challenge, accept_unsigned)
        self._to_cancel: set[str] = set()  # signed goals, as soon as they are accepted
        self._held: deque[ExecutionReport] = deque(maxlen=MOST_HELD)
        self._followed: set[str] = set()  # requests that other clients made
        self._goals: dict[str, SentGoal] = {}  # open ones
        self.stopped = self._renewed = False
        self._reported_s = -math.inf
        self._context = Context()
        check_security(())
        try:
            # No arguments: the program's arguments are for its own nodes.
            rclpy.init(
                args=[], context=self._context, domain_id=domain,
                signal_handler_options=SignalHandlerOptions.NO,
            )  # fmt: skip
            self._make(server, namespace)
        except BaseException as error:
            self._context.try_shutdown()
            if not isinstance(error, Exception):
                raise
            # rclpy has a different exception for each wrong name.
            problem = f"cannot make a client of {quoted(server)}: {reason(error)}"
            raise ConfigurationError(problem) from error

    @abstractmethod
    def _listen(self, server: str) -> None:
        """Subscribe to the segments or chunks of requests."""

    def _make(self, server: str, namespace: str) -> None:
        self._node = Guarded(
            f"{self.NAME}_client_{uuid.uuid4().hex[:12]}", context=self._context,
            namespace=namespace, enable_rosout=False, start_parameter_services=False,
            parameter_overrides=[Parameter("use_sim_time", value=self._use_sim_time)],
        )  # fmt: skip
        self.simulation = Simulation(self._node)
        self.server = self._node.resolve_service_name(server)
        self._executor = SingleThreadedExecutor(context=self._context)
        self._executor.add_node(self._node)
        results: Any = self._node.create_client(srv.GetResult, f"{server}/get_result")
        self._action = RequestClient(
            self._node, self.ACTION, self.NAME, server, results, self.check
        )
        self._reports = self._node.create_publisher(
            msg.ExecutionReport, f"{server}/execution_reports", qos.reliable()
        )
        self._listen(server)
        self._segments: Any = self._node.create_client(srv.GetSegments, f"{server}/get_segments")
        self._cancel: Any = self._node.create_client(srv.CancelRequest, f"{server}/cancel_request")
        self._list: Any = self._node.create_client(srv.ListRequests, f"{server}/list_requests")
        self.inquiries = Inquiries(results, self._listener_of, self.server, self.check)
        # Made last: readers become known in order, so a server that answers it knows the others.
        self.watch = ServerWatch(self._node, server, self._on_news, self.check)

    def post(self, work: Callable[[], None]) -> None:
        """Run a function in `spin`; from any thread."""
        with contextlib.suppress(InvalidHandle):  # the node has just been closed
            self._executor.create_task(work)

    def spin(self, timeout_s: float) -> None:
        """Run the callbacks of messages that have come, or wait for the next one."""
        try:
            self._executor.spin_once(timeout_sec=timeout_s)
        except Exception:
            # A server of another interface may send unreadable messages; `find` reports it.
            if self.watch.fits or not self._context.ok():
                raise

    def stop(self) -> None:
        """Let the owner's loop end."""
        self.stopped = True

    def close(self) -> None:
        """Leave ROS, once the readers of the last report had time to take it."""
        self.stopped = True
        time.sleep(max(self._reported_s + LINGER_S - time.monotonic(), 0.0))
        self._executor.shutdown(timeout_sec=0)
        self._node.destroy_node()
        self._context.try_shutdown()

    @property
    def server_is_there(self) -> bool:
        """Whether the server can be asked."""
        return self._action.server_is_there and self._list.service_is_ready()

    def find(self, timeout_s: float, go_on: Callable[[], bool] = lambda: True) -> None:
        """Wait until the server and this node can reach each other.

        Raises:
            ConfigurationError: the server does not answer in time, or has another interface.
        """
        end_s = time.monotonic() + timeout_s
        while go_on() and not self.watch.find(lambda: self.server_is_there):
            left_s = end_s - time.monotonic()
            if left_s <= 0:
                raise ConfigurationError(not_found(self.server, timeout_s))
            self.spin(min(POLL_S, left_s))

    def ping(self, answered: Future[str]) -> bool:
        """Ask for the server's interface; return whether there is a server to ask.

        The answer is empty, or says why this node cannot use the server.
        """
        return self.watch.look(self.server_is_there, answered.set_result)

    def report(self, report: ExecutionReport) -> None:
        """Publish a robot's report."""
        if self._signer is not None and not self.watch.fits:
            self._held.append(report)  # another server has another challenge
            return
        message = stamped(self._node, conversions.EXECUTION_REPORT.message(report))
        self._reports.publish(self._signed(message))
        self._reported_s = time.monotonic()

    def ask_result(
        self, request_id: str, answered: Callable[[srv.GetResult.Response], None]
    ) -> bool:
        """Ask how a request ended; return whether there is a server to ask."""
        return self._action.ask_result(request_id, answered)

    def _on_news(self) -> None:
        self.inquiries.hurry()
        self._renewed = True

    def renewed(self) -> bool:
        """Return once whether another server may have taken the place of the last one."""
        renewed, self._renewed = self._renewed, False
        return renewed

    def tick(self) -> str:
        """Do periodic work; if the server is lost, say why, once.

        All open requests are void then: the caller ends them. Held reports stay: the next server
        may go on with their plans.
        """
        lost = self.watch.lost()
        if lost:
            self.inquiries.clear()
            self._followed.clear()
            self._to_cancel.clear()
            goals, self._goals = self._goals, {}
            for goal in goals.values():
                goal.abandon()
        self.inquiries.tick()
        if self._held:
            self._send_held()
        return lost

    def _send_held(self) -> None:
        """Send the reports that wait for the challenge of a server, if it is known."""
        try:
            found = self.watch.find(lambda: self.server_is_there)
        except ConfigurationError:  # a request says why
            self._held.clear()
            return
        if found:
            held, self._held = self._held, deque(maxlen=MOST_HELD)
            for report in held:
                self.report(report)

    def follow(self, request_id: str) -> None:
        """Ask for the result of a request that another client made, until it comes."""
        self._followed = {one for one in self._followed if self._listener_of(one) is not None}
        self._followed.add(request_id)
        self.inquiries.open(request_id, followed=True)

    def take_up(self, request_id: str) -> None:
        """Follow a request of this client without its goal, which no server knows now."""
        goal = self._goals.pop(request_id, None)
        if goal is not None:
            goal.abandon()
        self.follow(request_id)

    def ask_running(self, answered: Future[Any]) -> bool:
        """Ask for the requests being served; return whether there is a server to ask."""
        return self._call(self._list, srv.ListRequests.Request(), answered)

    def ask_segments(self, request_id: str, agent: str, answered: Future[Any]) -> bool:
        """Ask for the segments of a plan; return whether there is a server to ask."""
        asked = srv.GetSegments.Request(agent=agent, request_id=request_id)
        return self._call(self._segments, asked, answered)

    def _call(self, client: Any, request: Any, answered: Future[Any]) -> bool:
        """Call a service; return whether there is a server to call.

        Args:
            client: of the service.
            request: sent to it.
            answered: gets the response.
        """
        if not client.service_is_ready():
            return False
        sent = self.check.ask(client, request)
        sent.add_done_callback(lambda future: answered.set_result(future.result()))
        return True

    def cancel(self, request_id: str) -> None:
        """Cancel a request; a goal that is not accepted yet is canceled when it is."""
        if request_id in self._followed:
            self._call_cancel(request_id)
        elif request_id in self._goals and self._signer is None:
            self._goals[request_id].cancel()
        elif request_id in self._goals:  # the action's own message carries no signature
            self._to_cancel.add(request_id)
            if self._goals[request_id].accepted:
                self._call_cancel(request_id)

    def _call_cancel(self, request_id: str) -> None:
        asked = srv.CancelRequest.Request(request_id=request_id)
        if self._signer is not None:
            asked.agent = self._signer.agent
        self._cancel.call_async(self._signed(asked))

    def _signed(self, message: AnyMessage) -> AnyMessage:
        """Sign a message, if this client has a key; return it."""
        if self._signer is not None:
            sign(message, self._signer, self.watch.challenge)
        return message

    def _deliver_to_listener(
        self,
        kind: Any,
        topic: str,
        listener_of: Callable[[str], ResultListener[Any] | None],
        take: Callable[[Any, Any], None],
        depth: int = qos.QUEUE,
    ) -> None:
        """Subscribe to a topic of all requests, and pass each message to its request's listener.

        A content filter would cost the server time for each message and each reader.
        """

        def on_message(message: Any) -> None:
            listener = listener_of(message.request_id)
            ours = listener is not None and listener.agent == message.agent
            if ours and self.check.takes(message):
                take(listener, message)

        self._node.create_subscription(kind, topic, on_message, qos.reliable(depth))

    def _send_goal(
        self,
        goal: Any,
        request: Request,
        task: ResultListener[Any],
        on_feedback: Callable[[Any], None] | None = None,
    ) -> None:
        """Send a goal; its result goes to the task.

        Args:
            goal: the goal's message.
            request: the same request.
            task: takes the result.
            on_feedback: takes feedback messages.
        """
        request_id = request.request_id
        self._followed.discard(request_id)
        self.inquiries.open(request_id)

        def forget() -> None:
            self._goals.pop(request_id, None)
            self._to_cancel.discard(request_id)
            self.inquiries.close(request_id)

        def accepted() -> None:
            self.inquiries.accepted(request_id)
            if request_id in self._to_cancel:
                self._call_cancel(request_id)

        def doubt() -> None:
            """Go on without the goal: another node answers for the server's action."""
            self.take_up(request_id)
            self.inquiries.open(request_id, period_s=FOLLOWED_S, sure_s=SURE_S)
            if request_id in self._to_cancel:
                self._call_cancel(request_id)

        self._goals[request_id] = self._action.send_request(
            self._signed(goal),
            request,
            task.finish,
            task.lose,
            on_feedback=on_feedback,
            on_accepted=accepted,
            on_ended=forget,
            on_forgotten=lambda: self.take_up(request_id),
            on_forged=doubt,
        )


class ClientNode(RequestNode[ResultListener[Segment]]):
    """The node of a client for plans."""

    ACTION, NAME = Plan, "plan"

    def send(self, request: PlanRequest, max_tokens: int, task: ResultListener[Segment]) -> None:
        """Send a goal; its segments and result go to the task."""
        goal = PLAN_REQUEST.message(request, Plan.Goal)
        goal.max_tokens = max_tokens

        def on_feedback(feedback: Any) -> None:
            segment = feedback.segment
            # A signed segment of another request can be sent as feedback of this one.
            if segment.request_id == request.request_id and self.check.takes(segment):
                task.offer(SEGMENT.read(segment))

        self._send_goal(goal, request, task, on_feedback)

    def ask_skill_set(self, name: str, answered: Future[Any]) -> bool:
        """Ask for a skill set; return whether there is a server to ask."""
        return self._call(self._skill_sets, srv.GetSkillSet.Request(name=name), answered)

    def _listen(self, server: str) -> None:
        self._skill_sets: Any = self._node.create_client(
            srv.GetSkillSet, f"{server}/get_skill_set", qos_profile=qos.reliable()
        )
        self._deliver_to_listener(
            msg.Segment, f"{server}/segments", self._listener_of,
            lambda task, message: task.offer(SEGMENT.read(message)),
        )  # fmt: skip


class TalkNode(RequestNode[ResultListener[StreamChunk]]):
    """The node of a client for conversations."""

    ACTION, NAME = Converse, "converse"

    def send(
        self, goal: Converse.Goal, request: StreamRequest, answer: ResultListener[StreamChunk]
    ) -> None:
        """Send a goal; its chunks and result go to the answer."""
        self._send_goal(goal, request, answer)

    def _listen(self, server: str) -> None:
        self._deliver_to_listener(
            msg.StreamChunk, f"{server}/stream_chunks", self._listener_of,
            lambda answer, message: answer.offer(STREAM_CHUNK.read(message)), qos.TOKENS,
        )  # fmt: skip
