"""Several servers behind the interface of one: requests go out, and results come back."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from functools import partial
from queue import SimpleQueue

from timely_llm.core.clock import Clock
from timely_llm.core.request import (
    ErrorCode,
    ExecutionReport,
    PlanRequest,
    Rejected,
    ReportState,
    Request,
    Result,
    StreamChunk,
    StreamRequest,
    StreamResult,
    goes_on,
    skill_set_in_use,
)
from timely_llm.core.segment import Segment
from timely_llm.core.text import listed
from timely_llm.dispatch.alone import alone
from timely_llm.dispatch.contract import Dispatcher, ServerView, Waiting
from timely_llm.dispatch.conversations import DispatchedConversations
from timely_llm.dispatch.early import EarlyResults, Unclaimed
from timely_llm.dispatch.expected import ExpectedLengths
from timely_llm.dispatch.front.actions import (
    Action,
    Cancel,
    Deliver,
    Finish,
    Inquire,
    Send,
    Tell,
    Withdraw,
)
from timely_llm.dispatch.front.delivered.recovery import Words, asked_first
from timely_llm.dispatch.front.front import Front
from timely_llm.dispatch.front.placement import MoveQuestion
from timely_llm.dispatch.link import Found, Link
from timely_llm.dispatch.questions import EndQuestions, RelayQuestions
from timely_llm.dispatch.settings import DispatchSettings
from timely_llm.dispatch.skill_sets import DispatchedSkillSets
from timely_llm.serving.limits import RequestGate
from timely_llm.serving.server.inbox import Drains, Promises, settle
from timely_llm.serving.server.registration import Read
from timely_llm.serving.sink import ServerSink

LOOK_S = 0.02
"""Seconds between two looks at silent servers and at requests that wait."""

LONGEST_READING_S = 5.0
"""A server joins after this time though its skill sets are not all read, seconds."""

UNHEARD_S = 10.0
"""Time in which a server that was found says what skill sets it has, seconds: until then, none is
unknown."""


@dataclass(eq=False)
class _ServerState:
    """A server as the relay knows it: its link, its life, and when its last view came."""

    link: Link
    life: str = ""
    met_s: float = math.inf  # of the first view of its life
    heard_s: float = -math.inf
    shown: bool = False  # the front has its views
    active: bool = True  # by its last view


class Relay(RelayQuestions):
    """Serves requests with several servers. No call blocks, but for other calls that run.

    What servers deliver may come in another thread than the rest. They send requests' outcomes in
    any order; what a server says counts only while it has the request. The owner calls `tick` at
    `wake_s` at the latest.

    Args:
        dispatcher: the rule that assigns requests; a new one.
        sink: takes accepted requests, segments, tokens and results.
        clock: the time.
        settings: how to serve.
        read: reads the texts of skill sets, in a thread of its own.
        say: takes a sentence for the log.
        wake: lets the owner's thread call `tick` soon; called from any thread.

    Attributes:
        problem: why nothing will be served any more; always empty.
        skill_sets: those that requests may name.
    """

    def __init__(
        self,
        dispatcher: Dispatcher,
        sink: ServerSink,
        clock: Clock,
        settings: DispatchSettings,
        read: Read,
        say: Callable[[str], None],
        wake: Callable[[], None],
    ) -> None:
        self._sink = sink
        self._settings = settings
        self._say = say
        self._wake = wake
        self._gate = RequestGate(settings.limits, clock)
        self._promises = Promises()
        self._posted: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self.skill_sets = DispatchedSkillSets(self._gate, self._promises, self._post, read, say)
        words = Words(self.skill_sets.parsed)
        front = Front(dispatcher, words, settings.moves, settings.hedge)
        super().__init__(self._gate, front, clock)
        self._conversations = DispatchedConversations(settings.max_conversations)
        self._servers: dict[str, _ServerState] = {}
        self._lives: dict[str, str] = {}
        self._sent: dict[str, tuple[StreamRequest, str]] = {}  # as sent, and the server
        self._early = EarlyResults()
        self._unclaimed = Unclaimed()
        self._cancels: dict[str, Future[bool]] = {}
        self._waits_s: dict[str, float] = {}  # since when requests have no server
        self._expected = ExpectedLengths()
        self._ends = EndQuestions()
        self._look_s = -math.inf
        self._drains = Drains()
        self.problem = ""

    # As a server.

    @property
    @alone
    def servers(self) -> list[str]:
        """The names of the servers that are there, in alphabetical order."""
        return sorted(name for name, server in self._servers.items() if server.shown)

    @alone
    def accept(self, accepting: bool) -> None:
        """Accept requests from now on, or refuse them; a new relay accepts."""
        self._gate.open(accepting)
        self._drains.let_go()

    @alone
    def submit(self, request: Request) -> None:
        """Accept a request; its segments or chunks and its result go to the sink.

        Raises:
            Rejected: it is not taken, and why.
            RequestError: its conversation is too long.
        """
        if problem := self._no_server():
            raise Rejected(ErrorCode.INACTIVE, problem)
        now = self._clock.now()
        if isinstance(request, StreamRequest):
            request = self._conversations.whole(request)
        elif isinstance(request, PlanRequest):
            self.skill_sets.expect(request.skill_set, now)
        self._gate.enter(request)  # with the name of the dispatcher before this one
        request = replace(self._gate.as_let_in(request), dispatcher=self._settings.name)
        try:
            self._sink.accepted(request)
            self._act(self._front.asked(self._waiting(request, now), now))
        except BaseException:  # its client hears of it, and a server that has it ends it
            self._gate.leave(request.request_id)
            self._front.end(request.request_id, ErrorCode.ENGINE_FAILED, "", now)
            raise

    @alone
    def report(self, report: ExecutionReport) -> None:
        """Take a robot's word about a segment; a sign of life without one goes to all servers."""
        if not report.request_id and report.state is ReportState.ALIVE:
            for server in self._servers.values():
                server.link.report(report)
            return
        self._act(self._front.report(report, self._clock.now()))

    @alone
    def cancel(self, request_id: str, *, unless_begun: bool = False) -> Future[bool]:
        """End a request; the future says whether it was there.

        Args:
            request_id: the request.
            unless_begun: only if its client got nothing yet; else the future raises.
        """
        future: Future[bool] = self._promises.make()
        delivered = self._front.delivered(request_id)
        if unless_begun and delivered is not None and delivered.begun:
            settle(future, error=goes_on(request_id))
            return future
        if request_id not in self._gate:
            settle(future, False)
            return future
        if request_id in self._cancels:
            return self._cancels[request_id]
        self._cancels[request_id] = future
        self._act(self._front.cancel(request_id, self._clock.now()))
        return future

    @alone
    def unregister(self, name: str) -> Future[None]:
        """Forget a skill set that no request uses; the future says why it cannot be."""
        users = sum(
            isinstance(one, PlanRequest) and one.skill_set == name for one in self._gate.requests
        )
        if not users:
            return self.skill_sets.unregister(name)
        future: Future[None] = self._promises.make()
        settle(future, error=skill_set_in_use(name, users))
        return future

    @alone
    def drain(self, timeout_s: float) -> Future[None]:
        """Refuse new requests; the future is done when nothing is served any more.

        Args:
            timeout_s: what is left then is ended.
        """
        self._gate.open(False)
        drained: Future[None] = self._promises.make()
        self._drains.add(self._clock.now() + timeout_s, drained)
        return drained

    @alone
    def close(self) -> bool:
        """End all requests here and at their servers, and free the links; return true."""
        self._gate.close()
        self._end_all("the dispatcher stops")
        self.skill_sets.close()
        self._promises.break_all(Rejected(ErrorCode.SHUTTING_DOWN, "the dispatcher stops"))
        for server in self._servers.values():
            server.link.close()
        return True

    @alone
    def result(self, request_id: str) -> Future[Result | None]:
        """Ask all servers how a request ended that an earlier dispatcher sent; None: none knows.

        Those that are about to join are asked too.
        """
        future: Future[Result | None] = self._promises.make()
        links = {n: one.link for n, one in self._servers.items() if math.isfinite(one.met_s)}
        self._ends.ask(request_id, links, future, self._clock.now())
        return future

    # Time.

    @alone
    def wake_s(self) -> float:
        """Return when to call `tick`, on the clock."""
        return self._front.wake_s

    @alone
    def tick(self) -> None:
        """Do what is due."""
        while not self._posted.empty():
            self._posted.get()()
        now = self._clock.now()
        if now >= self._front.wake_s:
            self._act(self._front.tick(now))
        if now < self._look_s:
            return
        self._look_s = now + LOOK_S
        for name, server in list(self._servers.items()):
            if server.shown and now - server.heard_s > self._settings.silence_s:
                self.lost(name, f"it has published no load for {now - server.heard_s:.0f} s")
        self._end_waiting(now)
        for early in self._early.due(now):
            self.ended(early.server, early.result)
        self._ends.tick(now)
        end_s = self._drains.end_s
        if end_s <= now or (end_s < math.inf and not len(self._gate)):
            self._end_all("the dispatcher stops serving")
            self._drains.let_go()

    def _end_waiting(self, now: float) -> None:
        """End requests that wait too long for a server, or for a skill set that none has."""
        self._waits_s = {key: self._waits_s.get(key, now) for key in self._front.waiting}
        for key, since_s in self._waits_s.items():
            delivered = self._front.delivered(key)
            request = delivered.waiting.request if delivered is not None else None
            if now - since_s > self._settings.queue_timeout_s:
                why = self._no_server() or "no server could take it"
                self._end(key, ErrorCode.EXPIRED, f"waited {now - since_s:.0f} s: {why}")
            elif isinstance(request, PlanRequest):
                refusal = self.skill_sets.refusal(request.skill_set, now)
                if refusal is not None:
                    self._end(key, refusal.code, str(refusal))

    # Servers.

    def _no_server(self) -> str:
        """Return why no server takes requests; empty: one does."""
        if not (there := self.servers):
            return self._settings.none_there
        if self._front.last_views:
            return ""
        return f"all servers are inactive: activate one first ({listed(there, 4)})"

    @alone
    def joined(self, name: str, link: Link) -> None:
        """Take a server that was found; its requests begin with its first view."""
        self._servers[name] = _ServerState(link)
        self.skill_sets.found(name, self._clock.now() + UNHEARD_S)

    def heard(self, view: ServerView, life: str) -> None:
        """Take what a server says of itself.

        What servers deliver does not wait until it is found which requests should move.

        Args:
            view: as it published it; `age_s` and `rtt_s` say when.
            life: a text for each start of the server.
        """
        if (question := self._heard(view, life)) is not None and question.answer:
            self._move(question)

    @alone
    def _heard(self, view: ServerView, life: str) -> MoveQuestion | None:
        """Take a view; return the question which requests should move, if any may."""
        server, name, now = self._servers.get(view.name), view.name, self._clock.now()
        if server is None:
            return None
        if server.shown and server.life != life:
            self.lost(name, "it was started again")
        if server.life != life or math.isinf(server.met_s):
            server.met_s = now
            self.skill_sets.joined(name, server.link, view.skill_sets)
        server.life, server.heard_s = life, now
        self.skill_sets.seen(name, view.skill_sets)
        if not server.shown:
            read = self.skill_sets.has_read(name, view.skill_sets)
            if not read and now < server.met_s + LONGEST_READING_S:
                return None
            server.shown = True
            self._say(f"server {name} joins")
        if server.active != view.active:
            server.active = view.active
            self._say(f"server {name} {'is active again' if view.active else 'is inactive'}")
        names = self.skill_sets.usable(name, view.skill_sets)
        made_s = now - view.rtt_s / 2.0 - view.age_s
        view = replace(view, skill_sets={one: view.skill_sets[one] for one in names}, age_s=0.0)
        self._act(self._front.noted(view, made_s, now))
        if self._lives.get(name) != life:
            self._lives[name] = life
            self._unclaimed.begin(name)
            server.link.find(partial(self._found, name, life))
        return self._front.to_move(view, now)

    @alone
    def _move(self, question: MoveQuestion) -> None:
        """Withdraw the requests that should move."""
        self._act(self._front.moved(question))

    @alone
    def lost(self, name: str, reason: str) -> None:
        """Send the requests of a server that is gone to other servers."""
        server = self._servers.get(name)
        if server is None:
            return
        server.met_s = math.inf
        self._unclaimed.end(name)
        self.skill_sets.left(name)
        if not server.shown:
            return
        server.shown = False
        self._say(f"server {name} is lost: {reason}")
        self._conversations.lost(name)
        self._act(self._front.lost(name, self._clock.now()))

    @alone
    def left(self, name: str) -> None:
        """Forget a server that is not there any more."""
        self.lost(name, "it is gone")
        if (server := self._servers.pop(name, None)) is not None:
            server.link.close()

    @alone
    def segment(self, server: str, segment: Segment) -> None:
        """Take a segment of a server."""
        if segment.request_id not in self._gate and self._unclaimed.keep(server, segment):
            return
        self._act(self._front.segment(server, segment, self._clock.now()))
        self._take_early(segment.request_id)

    @alone
    def chunk(self, server: str, chunk: StreamChunk) -> None:
        """Take a token of a server."""
        if chunk.request_id not in self._gate and self._unclaimed.keep(server, chunk):
            return
        self._act(self._front.chunk(server, chunk, self._clock.now()))
        self._take_early(chunk.request_id)

    @alone
    def ended(self, server: str, result: Result) -> None:
        """Take the end of a request at a server.

        A result may overtake segments or tokens, which come by another topic: it waits for them.
        """
        now, key = self._clock.now(), result.request_id
        delivered = self._front.delivered(key)
        if delivered is None or not self._front.serves(server, key):
            self._early.drop(key, server)
            self._front.ended(server, result, now)
            return
        if not delivered.has_come(result) and self._early.waits(server, result, now):
            return
        self._early.drop(key, server)
        if result.error_code is ErrorCode.UNKNOWN_CONVERSATION and key in self._sent:
            self._conversations.gone(self._sent[key][0])
            self._act(self._front.forgotten(key, server, now))
            return
        self._act(self._front.ended(server, result, now))

    def _take_early(self, request_id: str) -> None:
        """Take the result that came before a segment or token of its request."""
        if (early := self._early.of(request_id)) is not None:
            self.ended(early.server, early.result)
            self._wake()  # it may have to go elsewhere

    # How it is done.

    def _post(self, work: Callable[[], None]) -> None:
        self._posted.put(work)
        self._wake()

    def _waiting(self, request: Request, now: float) -> Waiting:
        return self._expected.waiting(request, now, self._front.last_views)

    def _act(self, actions: Sequence[Action]) -> None:
        """Carry out what the front asks for."""
        for action in actions:
            match action:
                case Send(waiting, name):
                    self._send(waiting.request, name)
                case Withdraw(key, name):
                    self._servers[name].link.withdraw(key, partial(self._stays, key, name))
                case Cancel(key, name):
                    if name in self._servers:
                        self._servers[name].link.cancel(key)
                case Inquire(key, name):
                    self._servers[name].link.inquire(key, partial(self._answered, key, name))
                case Tell(report, name):
                    self._servers[name].link.report(report)
                case Deliver(Segment() as segment):
                    self._sink.segment(segment)
                case Deliver(StreamChunk() as chunk):
                    self._sink.chunk(chunk)
                case Finish(result):
                    self._finish(result)

    def _send(self, request: Request, server: str) -> None:
        if isinstance(request, StreamRequest):
            request = self._conversations.for_server(request, server)
            self._sent[request.request_id] = request, server
        self._servers[server].link.send(request)

    @alone
    def _stays(self, key: str, server: str) -> None:
        """Record that a server keeps a request that was to be withdrawn."""
        self._front.stays(key, server)

    @alone
    def _answered(self, key: str, server: str, result: Result | None) -> None:
        """Take a server's answer to the question how a request ended."""
        if result is not None:
            self.ended(server, result)
        else:
            self._act(self._front.forgotten(key, server, self._clock.now()))

    def _finish(self, result: Result) -> None:
        """Pass the end of a request to its client."""
        key = result.request_id
        self._unclaimed.over(key)
        request = next((one for one in self._gate.requests if one.request_id == key), None)
        sent, server = self._sent.pop(key, (None, ""))
        if isinstance(result, StreamResult) and isinstance(request, StreamRequest) and sent:
            there = server if server in self.servers else ""
            self._conversations.ended(request, sent, there, result)
        if result.error_code is ErrorCode.NONE and request is not None:
            self._expected.ended(request, result)
        if self._gate.leave(key, result.error_code is ErrorCode.NONE):
            self._sink.ended(result)
        if (future := self._cancels.pop(key, None)) is not None:
            settle(future, result.error_code is ErrorCode.CANCELED)

    def _end(self, key: str, code: ErrorCode, reason: str) -> None:
        """End a request here, and at its server."""
        self._act(self._front.end(key, code, reason, self._clock.now()))

    def _end_all(self, reason: str) -> None:
        for key in self._front.open:
            self._end(key, ErrorCode.SHUTTING_DOWN, reason)

    @alone
    def _found(self, name: str, life: str, found: Sequence[Found]) -> None:
        """Take the requests that a server got from a dispatcher of this name that is gone."""
        server, now = self._servers.get(name), self._clock.now()
        if server is None or server.life != life or not server.shown:
            return
        taken = []
        deliveries, over = self._unclaimed.end(name)
        for one in found:
            key, old = one.request.request_id, self._front.delivered(one.request.request_id)
            if key in over or self._front.serves(name, key):
                continue  # it was sent, or has ended, while the answer was on its way
            if old is not None and not old.is_behind(one):
                self._front.has_wrongly(name, key, now)
                continue
            first, _ = asked_first(one.request)
            self._gate.enter(first, must=True)
            self._act(self._front.adopted(name, self._waiting(first, now), one, now))
            taken.append(key)
        if taken:
            what = f"requests of an earlier dispatcher: {listed(taken, 4)}"
            self._say(f"server {name} goes on with {what}")
        for delivery in deliveries:
            if isinstance(delivery, StreamChunk):
                self.chunk(name, delivery)
            elif not any(delivery in one.segments for one in found):
                self.segment(name, delivery)
