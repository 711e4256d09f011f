"""A server that asks a cloud for help, with the interface of the server that does the work."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any, TypeVar

from timely_llm.cloud.contract import Cloud, CloudEnd, CloudEvent, CloudWords
from timely_llm.core.clock import Clock
from timely_llm.core.errors import RequestError
from timely_llm.core.generation import State
from timely_llm.core.request import (
    ErrorCode,
    ExecutionReport,
    PlanRequest,
    Rejected,
    Request,
    RequestMode,
    Result,
    StreamChunk,
    StreamRequest,
    StreamResult,
    goes_on,
    served_already,
)
from timely_llm.core.segment import Segment
from timely_llm.core.step import StepResult
from timely_llm.dispatch.conversations import DispatchedConversations
from timely_llm.progressive.answer import HelpedAnswer
from timely_llm.progressive.choice import AutoHelp
from timely_llm.progressive.ensemble.dry_run import MakeWorld
from timely_llm.progressive.plan import HelpedPlan
from timely_llm.progressive.settings import HelpSettings
from timely_llm.serving.failures import Failures, in_words
from timely_llm.serving.server.face import (
    RequestServer,
    RequestStatus,
    RunningRequest,
    SkillSetStore,
)
from timely_llm.serving.server.inbox import settle
from timely_llm.serving.server.results import check_asked
from timely_llm.serving.sink import ServerSink
from timely_llm.skills.skill_set import SkillSet, parse_skill_set

log = logging.getLogger(__name__)
T = TypeVar("T")
Helped = HelpedAnswer | HelpedPlan
_EDGE = "edge"


class ProgressiveServer:
    """Serves requests by a server at the edge, some of them with the help of a cloud.

    It is the sink of that server, and its interface for clients. What comes of the edge is taken in
    any thread and passed on at once. The edge is called by `submit`, `cancel`, `report` and `tick`
    alone, in the thread that calls these.

    Args:
        cloud: is asked for sketches; owned from now on.
        sink: takes what the clients get.
        settings: when the cloud is asked.
        clock: of all times.
        wake: asks for a `tick`, from any thread.
        most_conversations: conversations that are remembered.
        make_world: makes the worlds of a dry run of plans; None: no dry run decides.
    """

    def __init__(
        self,
        cloud: Cloud,
        sink: ServerSink,
        settings: HelpSettings,
        clock: Clock,
        wake: Callable[[], None],
        most_conversations: int = 64,
        make_world: MakeWorld | None = None,
    ) -> None:
        self._cloud = cloud
        self._sink = sink
        self._settings = settings
        self._clock = clock
        self._wake = wake
        self._make_world = make_world
        self._edge: RequestServer
        self._lock = threading.RLock()
        self._helped: dict[str, Helped] = {}
        self._parents: dict[str, str] = {}  # of all requests at the edge that belong to one
        self._actions: deque[Callable[[], None]] = deque()
        self._conversations = DispatchedConversations(most_conversations)
        self._turns: dict[str, tuple[StreamRequest, StreamRequest]] = {}  # as asked, as sent
        self._alone: dict[str, str] = {}  # why a request that asked for help has none
        self._failed_s = float("-inf")
        self._auto = AutoHelp(settings)
        self._failures = Failures(log, "a request with help failed")

    def attach(self, edge: RequestServer) -> None:
        """Pass requests to a server from now on; its sink must be this object."""
        self._edge = edge

    @property
    def skill_sets(self) -> SkillSetStore:
        """The registered skill sets."""
        return self._edge.skill_sets

    @property
    def serving(self) -> int:
        """How many requests the edge serves, parts of others included."""
        return self._edge.serving

    # The clients' calls.

    def submit(self, request: Request) -> None:
        """Accept a request.

        Raises:
            Rejected: the server does not take it, and why.
        """
        now = self._clock.now()
        with self._lock:
            self._act()
            if request.request_id in self._parents or self.serves(request.request_id):
                raise served_already(request.request_id)
            if isinstance(request, StreamRequest):
                request = self._conversations.whole(request)
            why = self._settings.refusal(request, now, self._failed_s, self._edge.serving)
            if isinstance(request, PlanRequest) and request.given_plan and why is None:
                why = "a plan written by hand needs no help"
            if why is None and request.mode is RequestMode.AUTO:
                why = self._auto.refusal(request)
            if why is None:
                self._begin(request, now)
            else:
                self._send(request, why)

    def _send(self, request: Request, why: str) -> None:
        """Pass a request to the edge alone; its end waits for the lock."""
        sent = replace(request, mode=RequestMode.DIRECT) if request.mode else request
        if isinstance(request, StreamRequest) and isinstance(sent, StreamRequest):
            sent = self._conversations.for_server(sent, _EDGE)
            self._edge.submit(sent)
            self._turns[request.request_id] = request, sent
        else:
            self._edge.submit(sent)
        if why:
            self._alone[request.request_id] = why

    def _begin(self, request: Request, now: float) -> None:
        """Begin a request with help."""
        key = request.request_id
        helped: Helped
        if isinstance(request, StreamRequest):
            helped = HelpedAnswer(request, self, self._settings, now)
        elif isinstance(request, PlanRequest):
            skill_set = self._skill_set(request)
            helped = HelpedPlan(request, self, self._settings, skill_set, now, self._make_world)
        else:
            raise RequestError(f"a server cannot serve a {type(request).__name__}")
        self._helped[key], self._parents[key] = helped, key
        try:
            self._edge.submit(helped.opening)
        except BaseException:
            del self._helped[key], self._parents[key]
            raise
        self._cloud.ask(helped.question, now)
        self._wake()

    def _skill_set(self, request: PlanRequest) -> SkillSet:
        """Return what a robot can do.

        Raises:
            Rejected: its skill set is not registered.
        """
        return _parsed(self._edge.skill_sets.text(request.skill_set))

    def report(self, report: ExecutionReport) -> None:
        """Take a robot's word about a segment."""
        with self._lock:
            helped = self._helped.get(report.request_id)
            if isinstance(helped, HelpedPlan) and helped.request.agent == report.agent:
                helped.report(report, self._clock.now())
                self._act()
            else:
                self._edge.report(report)

    def cancel(self, request_id: str, *, unless_begun: bool = False) -> Future[bool]:
        """End a request; the future says whether it was there.

        Args:
            request_id: the request.
            unless_begun: only if it had no step yet; else the future raises a `RequestError`.
        """
        with self._lock:
            helped = self._helped.get(request_id)
            if helped is None:
                return self._edge.cancel(request_id, unless_begun=unless_begun)
            if unless_begun and not helped.begun:
                return self._edge.cancel(request_id, unless_begun=True)  # its end is ours
            done: Future[bool] = Future()
            if unless_begun:
                settle(done, error=goes_on(request_id))
            else:
                helped.cancel(ErrorCode.CANCELED, "canceled by a client", self._clock.now())
                settle(done, True)
        self.tick()
        return done

    def serves(self, request_id: str) -> bool:
        """Return whether a request was let in and has not ended."""
        return request_id in self._helped or self._edge.serves(request_id)

    def requests_of(self, dispatcher: str) -> Future[list[RunningRequest]]:
        """Return the requests that a dispatcher sent and that are served, in order of arrival."""

        def with_helped(found: list[RunningRequest]) -> list[RunningRequest]:
            mine = [
                RunningRequest(one.request, *one.made_so_far)
                for one in self._helped.values()
                if dispatcher and one.request.dispatcher == dispatcher
            ]
            return [*self._others(found, lambda one: one.request.request_id), *mine]

        return self._after(self._edge.requests_of(dispatcher), with_helped)

    def so_far(self, request_id: str) -> Future[RunningRequest | None]:
        """Return a request that is being served, with what was made of it; None: it is not."""
        with self._lock:
            helped = self._helped.get(request_id)
            if helped is None:
                return self._edge.so_far(request_id)
            done: Future[RunningRequest | None] = Future()
            settle(done, RunningRequest(helped.request, *helped.made_so_far))
            return done

    def result(self, request_id: str) -> Future[Result | None]:
        """Return how a request ended of which the sink got no end; None: that is not known."""
        return self._edge.result(request_id)

    def unregister(self, name: str) -> Future[None]:
        """Forget a skill set that no request uses; the future says why it cannot be."""
        return self._edge.unregister(name)

    def statuses(self) -> Future[list[RequestStatus]]:
        """Return the states of the requests being served; those with help come last."""

        def with_helped(found: list[RequestStatus]) -> list[RequestStatus]:
            now = self._clock.now()
            mine = [
                RequestStatus(
                    key, one.request.agent, isinstance(one, HelpedPlan),
                    State.RUNNING if one.begun else State.QUEUED, one.delivered, one.due_in_s(now),
                )
                for key, one in self._helped.items()
            ]  # fmt: skip
            return [*self._others(found, lambda one: one.request_id), *mine]

        return self._after(self._edge.statuses(), with_helped)

    def segments(self, agent: str, request_id: str = "") -> Future[list[Segment]]:
        """Return delivered segments of plans being served; see `results.segments_of`."""
        with self._lock:
            helped = self._helped.get(request_id)
            if helped is not None:
                done: Future[list[Segment]] = Future()
                try:
                    check_asked(agent, request_id, helped.request)
                    settle(done, list(helped.segments) if isinstance(helped, HelpedPlan) else [])
                except RequestError as error:
                    settle(done, error=error)
                return done

        def with_helped(found: list[Segment]) -> list[Segment]:
            plans = (one for one in self._helped.values() if isinstance(one, HelpedPlan))
            mine = [
                segment for one in plans if one.request.agent == agent for segment in one.segments
            ]
            return [*self._others(found, lambda one: one.request_id), *mine]

        asked = self._edge.segments(agent, request_id)
        return asked if request_id else self._after(asked, with_helped)

    def _others(self, found: list[T], key: Callable[[T], str]) -> list[T]:
        """Return what belongs to no request with help."""
        return [one for one in found if key(one) not in self._parents]

    def _after(
        self, future: Future[list[T]], change: Callable[[list[T]], list[T]]
    ) -> Future[list[T]]:
        """Return a future with the changed result of another."""
        changed: Future[list[T]] = Future()

        def done(asked: Future[list[T]]) -> None:
            try:
                with self._lock:
                    result = change(asked.result())
            except BaseException as error:
                settle(changed, error=error)
            else:
                settle(changed, result)

        future.add_done_callback(done)
        return changed

    # The cloud, and time.

    def tick(self) -> None:
        """Take what the cloud says, do what is due, and call the edge."""
        now = self._clock.now()
        with self._lock:
            for event in self._cloud.poll(now):
                helped = self._helped.get(event.key)
                if isinstance(event, CloudEnd) and event.error:
                    self._failed_s = now
                if helped is not None:
                    self._safely(helped, partial(_heard, helped, event, now))
            for helped in list(self._helped.values()):
                if now >= helped.wake_s(now):
                    self._safely(helped, partial(helped.tick, now))
            self._act()

    def _safely(self, helped: Helped, work: Callable[[], None]) -> None:
        """Do work for a request; its failure ends this request and no other."""
        try:
            work()
        except Exception as error:
            self._failures.add(error)
            reason = f"its tokens or segments could not be delivered: {in_words(error)}"
            if helped.result is None:
                helped.cancel(ErrorCode.ENGINE_FAILED, reason, self._clock.now())

    def _act(self) -> None:
        """Call the edge and the cloud; the failure of one call keeps no other from its turn."""
        while self._actions:
            try:
                self._actions.popleft()()
            except Exception as error:
                self._failures.add(error)

    def wake_s(self) -> float:
        """Return when `tick` is needed at the latest, on the clock."""
        now = self._clock.now()
        with self._lock:
            if self._actions:
                return now
            waits = (helped.wake_s(now) for helped in self._helped.values())
            return min(self._cloud.next_s(), *waits) if self._helped else float("inf")

    def close(self) -> None:
        """End the requests with help that the edge has not ended, and the cloud's questions."""
        now = self._clock.now()
        with self._lock:
            self._cloud.close()
            for helped in list(self._helped.values()):
                helped.cancel(ErrorCode.SHUTTING_DOWN, "the server stops", now)
            self._actions.clear()

    # The outlets of requests with help.

    def ask_edge(self, parent: str, request: Request) -> None:
        """Submit the request of a part to the edge; a refusal comes back by `refused`."""
        self._parents[request.request_id] = parent

        def submit() -> None:
            try:
                self._edge.submit(request)
            except Rejected as error:
                del self._parents[request.request_id]
                if (helped := self._helped.get(parent)) is not None:
                    helped.refused(request.request_id, error, self._clock.now())

        self._later(submit)

    def has_room(self) -> bool:
        """Return whether the edge has room for more than one expansion of a part."""
        return self._edge.serving < self._settings.auto_requests

    def end_part(self, request_id: str) -> None:
        """End a request at the edge."""
        self._later(lambda: self._edge.cancel(request_id))

    def pass_report(self, report: ExecutionReport) -> None:
        """Pass a robot's report on to the edge."""
        self._later(lambda: self._edge.report(report))

    def forget(self, key: str) -> None:
        """Give up the question to the cloud."""
        self._later(lambda: self._cloud.cancel(key))

    def deliver(self, made: StreamChunk | Segment) -> None:
        """Pass a chunk or a segment on to the client."""
        if isinstance(made, StreamChunk):
            self._sink.chunk(made)
        else:
            self._sink.segment(made)

    def finish(self, result: Result) -> None:
        """Pass on how a request ended."""
        helped = self._helped.pop(result.request_id)
        self._auto.learn(result)
        if isinstance(helped, HelpedAnswer) and isinstance(result, StreamResult):
            self._conversations.ended(helped.request, helped.opening, "", result)
            self._later(lambda: self._edge.cancel(result.request_id))  # frees what its parts kept
        self._sink.ended(result)

    def _later(self, action: Callable[[], object]) -> None:
        self._actions.append(action)  # type: ignore[arg-type]
        self._wake()

    # The sink of the edge.

    def accepted(self, request: Request) -> None:
        """Publish a request of a client."""
        parent = self._parents.get(request.request_id)
        if parent is None:
            self._sink.accepted(request)
        elif parent == request.request_id and (helped := self._helped.get(parent)) is not None:
            self._sink.accepted(helped.request)

    def segment(self, segment: Segment) -> None:
        """Publish a segment, or pass it to the request with help that it is a part of."""
        if segment.request_id not in self._parents:
            self._sink.segment(segment)
            return
        with self._lock:
            helped = self._helped.get(self._parents.get(segment.request_id, ""))
            if isinstance(helped, HelpedPlan):
                self._safely(helped, partial(helped.made, segment, self._clock.now()))

    def chunk(self, chunk: StreamChunk) -> None:
        """Take a piece of an answer."""
        if chunk.request_id not in self._parents:
            self._sink.chunk(chunk)
            return
        with self._lock:
            helped = self._helped.get(self._parents.get(chunk.request_id, ""))
            if isinstance(helped, HelpedAnswer):
                self._safely(helped, partial(helped.made, chunk, self._clock.now()))

    def ended(self, result: Result) -> None:
        """Take the end of a request; that of a part is not the end of its request."""
        with self._lock:
            key = result.request_id
            parent = self._parents.pop(key, None)
            if parent is not None:
                helped = self._helped.get(parent)
                if helped is not None:
                    ended: Callable[[Any, float], None] = helped.piece_ended
                    self._safely(helped, partial(ended, result, self._clock.now()))
                return
            self._auto.learn(result)
            turn = self._turns.pop(key, None)
            if turn is not None and isinstance(result, StreamResult):
                self._conversations.ended(*turn, _EDGE, result)
            if why := self._alone.pop(key, ""):
                result = replace(result, fallback=why)
        self._sink.ended(result)

    def stepped(self, result: StepResult) -> None:
        """Pass a step on."""
        self._sink.stepped(result)


@lru_cache(maxsize=64)
def _parsed(skill_set: str) -> SkillSet:
    """Return the skill set in a text."""
    return parse_skill_set(skill_set)


def _heard(helped: Helped, event: CloudEvent, now: float) -> None:
    """Pass on what a cloud says."""
    if isinstance(event, CloudWords):
        helped.cloud_words(event.text, now)
    else:
        helped.cloud_ended(event, now)
