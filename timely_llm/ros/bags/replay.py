"""A trace replayed on a running server: simulated robots execute, simulated people read or hear.

Their time is the machine's, so the server must run without `use_sim_time`.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from rclpy.qos import DurabilityPolicy
from std_msgs.msg import String

from timely_llm import msg, srv
from timely_llm.action import Converse
from timely_llm.core.request import (
    ExecutionReport,
    PlanRequest,
    ReportState,
    StreamChunk,
    StreamRequest,
)
from timely_llm.core.segment import Segment
from timely_llm.experiments.recorded.replay_script import ReplayScript, request_of
from timely_llm.experiments.virtual.outcome import Run
from timely_llm.experiments.virtual.workload import JobInstance
from timely_llm.ros import conversions, qos
from timely_llm.ros.bags.replayed import ReplayedJob, ReplayedTalk
from timely_llm.ros.client.goal_client import GoalClient
from timely_llm.ros.client.node import POLL_S, ClientNode, ResultListener
from timely_llm.ros.conversions import stamped
from timely_llm.traces.lines import header_line
from timely_llm.traces.recordings.bags import LINE_TOPIC
from timely_llm.traces.streams import request_of as talk_request_of


class ReplayNode(ClientNode):
    """A client's node that also sends requests by topic, and publishes the trace's lines.

    Args:
        server: name of the server's node.
        namespace: of the server.
        domain: ROS domain; None: ROS_DOMAIN_ID.
        job_of: returns the open job of a request id; it takes segments and results.
        talk_of: returns the open conversation of a request id; it takes tokens and results.
        lines: number of the trace's lines; the publisher keeps all of them for late readers.
    """

    def __init__(
        self,
        server: str,
        namespace: str,
        domain: int | None,
        job_of: Callable[[str], ResultListener[Segment] | None],
        talk_of: Callable[[str], ResultListener[StreamChunk] | None],
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
        self._deliver_to_listener(
            msg.PlanResult, f"{server}/results", self._listener_of,
            lambda job, message: job.finish(conversions.PLAN_RESULT.read(message)),
        )  # fmt: skip
        self._converse = GoalClient(node, Converse, f"{server}/converse")
        self._streams = node.create_publisher(
            msg.StreamRequest, f"{server}/stream_requests", qos.reliable()
        )
        self._deliver_to_listener(
            msg.StreamChunk, f"{server}/stream_chunks", self._talk_of,
            lambda talk, message: talk.offer(conversions.STREAM_CHUNK.read(message)), qos.TOKENS,
        )  # fmt: skip
        self._deliver_to_listener(
            msg.StreamResult, f"{server}/stream_results", self._talk_of,
            lambda talk, message: talk.finish(conversions.STREAM_RESULT.read(message)),
        )  # fmt: skip
        self.watch.renew()

    @property
    def server_is_there(self) -> bool:
        """Whether the server can take requests, by action and by topic, and reports."""
        heard = (self._requests, self._streams, self._reports)
        return (
            super().server_is_there
            and self._converse.server_is_there
            and all(publisher.get_subscription_count() for publisher in heard)
        )

    def ask_by_topic(self, request: PlanRequest) -> None:
        """Publish a request; its segments and its result come by topic."""
        message = conversions.PLAN_REQUEST.message(request)
        message.max_tokens = 0
        self._requests.publish(stamped(self._node, message))

    def converse(self, request: StreamRequest) -> None:
        """Send a goal; its tokens and its result come by topic."""
        self._converse.send(conversions.stream_request_message(request, Converse.Goal))

    def converse_by_topic(self, request: StreamRequest) -> None:
        """Publish a request for an answer."""
        message = conversions.stream_request_message(request)
        self._streams.publish(stamped(self._node, message))

    def line(self, text: str) -> None:
        """Publish a line of the trace."""
        self._lines.publish(String(data=text))

    def alive(self, agent: str) -> None:
        """Send an agent's sign of life."""
        self.report(ExecutionReport("", agent, ReportState.ALIVE))

    def query_served(self, answered: Callable[[set[str]], None]) -> None:
        """Ask the server for the ids of the requests that it serves."""
        sent = self._list.call_async(srv.ListRequests.Request())
        sent.add_done_callback(
            lambda future: answered({status.request_id for status in future.result().requests})
        )

    def cancel(self, request_id: str) -> None:
        """Ask the server to end a request, whichever way it came."""
        self._cancel.call_async(srv.CancelRequest.Request(request_id=request_id))


CHECK_S = 1.0
"""Period of signs of life, and of questions for the requests being served, seconds."""
SILENT_S = 30.0
"""A live server without an answer for this time ends the replay, seconds."""
LEAD_S = 1.0
"""Time from finding the server to the start, seconds: other readers find this node meanwhile."""
CLOSE_S = 5.0

GoOn = Callable[[], bool]
ReportProgress = Callable[[int, int], None]
Asking = ReplayedJob | ReplayedTalk


@dataclass(frozen=True)
class Target:
    """The server of a replay.

    Attributes:
        server: name of its node.
        namespace: of the node.
        domain: ROS domain; None: ROS_DOMAIN_ID.
        by_topic: use its topics `plan_requests` and `stream_requests`, not its actions.
        timeout_s: longest wait for it, seconds.
    """

    server: str = "plan_server"
    namespace: str = ""
    domain: int | None = None
    by_topic: bool = False
    timeout_s: float = 10.0


@dataclass(frozen=True)
class Replayed:
    """The outcome of a replay.

    Attributes:
        run: outcomes of the requests that were sent; 0 s is the start.
        late_s: delay of each request after its time in the trace, seconds.
        results: number of requests by end: name of an error code, "LOST" or "UNFINISHED".
        unasked: requests that were not sent.
        problem: the server's fault that ended the replay early; empty: none did.
    """

    run: Run
    late_s: tuple[float, ...]
    results: Counter[str]
    unasked: int
    problem: str


def replay(
    what: ReplayScript,
    target: Target,
    go_on: GoOn = lambda: True,
    progress: ReportProgress = lambda *_: None,
) -> Replayed:
    """Send the requests of a script to a server; simulated robots execute the plans.

    Args:
        what: the script.
        target: the server.
        go_on: called often; when it returns false, all requests are canceled.
        progress: called with the number of ended requests and of all requests.

    Raises:
        ConfigurationError: there is no server, or ROS cannot use its names.
    """
    active: dict[str, Asking] = {}

    def job_of(request_id: str) -> ReplayedJob | None:
        found = active.get(request_id)
        return found if isinstance(found, ReplayedJob) else None

    def talk_of(request_id: str) -> ReplayedTalk | None:
        found = active.get(request_id)
        return found if isinstance(found, ReplayedTalk) else None

    lines = 1 + len(what.trace.jobs) + len(what.trace.conversations)
    node = ReplayNode(target.server, target.namespace, target.domain, job_of, talk_of, lines)
    try:
        node.find(target.timeout_s, go_on)
        return _Replay(what, node, active, target.by_topic).run(go_on, progress)
    finally:
        node.close()


class _Replay:
    """One replay."""

    def __init__(
        self, what: ReplayScript, node: ReplayNode, active: dict[str, Asking], by_topic: bool
    ) -> None:
        self._what = what
        self._node = node
        self._by_topic = by_topic
        self._jobs = [
            ReplayedJob(
                number, JobInstance(job.id, job, job.agent, job.arrival_s, True, ()),
                request_of(job), what.skill_sets[job.skill_set], node.report,
                lambda: node.watch.replaces_plans,
            )
            for number, job in enumerate(what.trace.jobs)
        ]  # fmt: skip
        self._talks = [ReplayedTalk(one, talk_request_of(one)) for one in what.trace.conversations]
        unsorted: list[Asking] = [*self._jobs, *self._talks]
        self._all = sorted(unsorted, key=lambda one: one.due_s)
        self._active = active
        self._late_s: list[float] = []
        self._missing: Counter[str] = Counter()
        self._problem = ""

    def run(self, go_on: GoOn, progress: ReportProgress) -> Replayed:
        """Replay to the end."""
        self._start_s = time.monotonic() + LEAD_S
        self._check_s = self._heard_s = self._start_s
        self._node.line(header_line(self._what.trace))
        while go_on() and not self._problem and (self._active or self._due_s < math.inf):
            self._ask()
            self._go_on()
            progress(len(self._late_s) - len(self._active), len(self._all))
            self._node.spin(max(self._wake_s() - time.monotonic(), 0.0))
            self._problem = self._problem or self._node.tick()
        end_s = time.monotonic()
        asked = self._all[: len(self._late_s)]
        self._close()
        results = [one.result for one in asked if one.result is not None]
        run = Run(
            tuple(j.outcome(self._start_s, end_s) for j in self._jobs if j.asked_s < math.inf),
            0,
            0.0,
            end_s - self._start_s,
            sum(result.generated_tokens for result in results),
            tuple(t.outcome(self._start_s) for t in self._talks if t.asked_s < math.inf),
        )
        ends = Counter(map(_end, asked))
        unasked = len(self._all) - len(asked)
        return Replayed(run, tuple(self._late_s), ends, unasked, self._problem)

    @property
    def _due_s(self) -> float:
        """When the next request is sent; infinite after the last one."""
        if len(self._late_s) == len(self._all):
            return math.inf
        return self._start_s + self._all[len(self._late_s)].due_s

    def _wake_s(self) -> float:
        wakes_s = (job.wake_s for job in self._active.values())
        poll_s = time.monotonic() + POLL_S
        return min(poll_s, self._due_s, self._check_s, *wakes_s)

    def _ask(self) -> None:
        """Send all due requests, then publish their lines of the trace."""
        first = len(self._late_s)
        while (due_s := self._due_s) <= time.monotonic():
            one = self._all[len(self._late_s)]
            one.ask()
            self._active[one.request.request_id] = one
            self._send(one)
            self._late_s.append(time.monotonic() - due_s)
        for one in self._all[first : len(self._late_s)]:
            self._node.line(one.line)

    def _send(self, one: Asking) -> None:
        if isinstance(one, ReplayedJob):
            if self._by_topic:
                self._node.ask_by_topic(one.request)
            else:
                self._node.send(one.request, 0, one)
        elif self._by_topic:
            self._node.converse_by_topic(one.request)
        else:
            self._node.converse(one.request)

    def _go_on(self) -> None:
        """Let robots and people go on, and do periodic work."""
        now = time.monotonic()
        for request_id, job in list(self._active.items()):
            job.tick(now)
            if job.done:
                del self._active[request_id]
        if now < self._check_s:
            return
        self._check_s = now + CHECK_S
        for agent in {job.agent for job in self._active.values()}:
            self._node.alive(agent)
        if now - self._heard_s > SILENT_S:
            self._problem = f"the server {self._node.server} answered nothing for {SILENT_S:g} s"
        elif self._node.server_is_there:
            self._node.query_served(partial(self._on_served, now))

    def _on_served(self, asked_s: float, served: set[str]) -> None:
        """Give up requests that the server has forgotten, as after its restart."""
        self._heard_s = time.monotonic()
        for request_id, job in self._active.items():
            old = job.asked_s < asked_s - CHECK_S
            if old and job.result is None and request_id not in served:
                self._missing[request_id] += 1
                job.lost = self._missing[request_id] > 1

    def _close(self) -> None:
        """Cancel all open requests, and wait a little for their results."""
        end_s, cancel_s = time.monotonic() + CLOSE_S, 0.0
        while self._active and not self._problem and (now := time.monotonic()) < end_s:
            if now >= cancel_s:  # repeated: a cancellation may overtake its request
                cancel_s = now + CHECK_S
                for request_id in self._active:
                    self._node.cancel(request_id)
            self._node.spin(POLL_S)
            for request_id, job in list(self._active.items()):
                if job.result is not None:
                    del self._active[request_id]


def _end(one: Asking) -> str:
    if one.result is not None:
        return one.result.error_code.name
    return "LOST" if one.lost else "UNFINISHED"
