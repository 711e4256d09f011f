"""Several servers in virtual time: a loop and a clock each, behind one dispatcher.

The loop that is furthest behind turns next. The dispatcher sees a server as its last view shows it,
and learns of a dead server when that has been silent for `SILENT_S`.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import count

from timely_llm.core.clock import VirtualClock
from timely_llm.core.events.run_event import RunEvent
from timely_llm.core.events.schema import ChunkEvent, EndEvent, SegmentEvent
from timely_llm.core.generation import State
from timely_llm.core.request import (
    ErrorCode,
    ExecutionReport,
    PlanRequest,
    Request,
    StreamChunk,
    StreamRequest,
)
from timely_llm.core.segment import Segment
from timely_llm.dispatch.contract import Dispatcher, ServerView, Waiting
from timely_llm.dispatch.front.actions import Action, Cancel, Deliver, Finish, Send, Tell, Withdraw
from timely_llm.dispatch.front.front import Front
from timely_llm.dispatch.load import Load
from timely_llm.experiments.virtual import workload
from timely_llm.experiments.virtual.clients import (
    SimulatedClients,
    SimulatedRobot,
    SimulationError,
    answer,
    stream_request,
)
from timely_llm.experiments.virtual.outcome import Run
from timely_llm.experiments.virtual.simulation import (
    MAX_TOKENS,
    SimulationSettings,
    request_for,
    simulated_loop,
)
from timely_llm.experiments.virtual.workload import JobInstance
from timely_llm.policies.contract import Policy
from timely_llm.serving.loop import Loop
from timely_llm.skills.skill_set import SkillSet
from timely_llm.traces.model import Conversation

PUBLISH_S = 0.1
"""Seconds between two views of a server that works."""

SILENT_S = 1.0
"""Silence after which a server counts as dead, seconds."""

_FIRST_AT_S = 1.0
_PATIENCE_S = 600.0  # without any event of a server
_TICK_S = 1e-9


@dataclass(frozen=True)
class SimulatedServer:
    """One of several servers.

    Attributes:
        name: unique among them.
        settings: its profile and its limits.
        dies_s: when it dies, on the trace's clock; infinite: never.
    """

    name: str
    settings: SimulationSettings
    dies_s: float = math.inf


class _Server:
    """A server with its loop, its clock, and the messages on their way to it."""

    def __init__(
        self,
        spec: SimulatedServer,
        loop: Loop,
        clock: VirtualClock,
    ) -> None:
        self.name = spec.name
        self.dies_s = spec.dies_s
        self.loop = loop
        self.clock = clock
        self.view = Load(loop, spec.name).view
        self._inbox: list[tuple[float, int, Callable[[], object]]] = []
        self._order = count()
        self.busy_s = 0.0
        self._wake_s = math.inf
        self._publish_s = clock.now()

    @property
    def next_s(self) -> float:
        """When it has something to do next, on its clock."""
        first_s = self._inbox[0][0] if self._inbox else math.inf
        return max(min(first_s, self._wake_s, self._publish_s), self.clock.now())

    def receive(self, at_s: float, happen: Callable[[], object]) -> None:
        """Let a message come at a time of its clock."""
        heapq.heappush(self._inbox, (at_s, next(self._order), happen))

    def turn(self, publish: Callable[[ServerView, float], None]) -> Sequence[RunEvent]:
        """Do what is next; return what happened."""
        self.clock.advance(self.next_s - self.clock.now())
        now = self.clock.now()
        heard = False
        while self._inbox and self._inbox[0][0] <= now + _TICK_S:
            heapq.heappop(self._inbox)[2]()
            heard = True
        if now >= self._publish_s - _TICK_S:
            publish(self.view(now), now)
            self._publish_s = max(self._publish_s + PUBLISH_S, now)
        if not heard and now < self._wake_s - _TICK_S:
            return ()
        events = self.loop.take_events()
        turn = self.loop.turn()
        self.busy_s += self.clock.now() - now
        self._wake_s = self.clock.now() if turn.stepped else turn.wake_s
        return (*events, *turn.events)


class _Clients(SimulatedClients):
    """Robots and people, and the front that takes their requests for several servers."""

    def __init__(
        self,
        servers: Sequence[_Server],
        dispatcher: Dispatcher,
        network_s: float,
        reports: bool,
        moves: bool,
        hedge: bool,
        skill_set: SkillSet,
        prompt_tokens: int,
    ) -> None:
        super().__init__(servers[0].clock, self._true_s, network_s, reports)
        self._servers = {one.name: one for one in servers}
        self._front = Front(dispatcher, self, moves, hedge)
        self._now = servers[0].clock.now()
        self._happened_s = self._now
        self._wake_s = math.inf
        self._gone: dict[str, int] = {}  # segments that a robot had when its server got the request
        self._skill_set = skill_set
        self._prompt_tokens = prompt_tokens
        for one in servers:
            self._hear(one.view(self._now), self._now)
            if one.dies_s < math.inf:
                self._at(one.dies_s + SILENT_S, partial(self._miss, one.name))

    def serve(self) -> Run:
        """Turn the servers' loops until all requests have ended.

        Raises:
            SimulationError: requests are left that no server serves.
        """
        servers = list(self._servers.values())
        begin_s = self._now
        while self._ended < self._asked:
            nearest = min(servers, key=_next_s, default=None)
            if nearest is None or nearest.next_s > self._happened_s + _PATIENCE_S:
                left = self._asked - self._ended
                raise SimulationError(f"{left} requests are left, and nothing will ever happen")
            if self._events and self._events[0][0] <= nearest.next_s:
                self._now = self._events[0][0]
                heapq.heappop(self._events)[2]()
            elif nearest.next_s >= nearest.dies_s:
                servers.remove(nearest)
            else:
                self._turn(nearest)
        arrivals_s = [robot.work.arrival_s for robot in self.robots.values()]
        arrivals_s += [person.conversation.arrival_s for person in self.people.values()]
        last_s = max(one.clock.now() for one in self._servers.values())
        return Run(
            tuple(robot.outcome for robot in self.robots.values()), self.stats.steps,
            math.fsum(one.busy_s for one in self._servers.values()),
            last_s - min(arrivals_s, default=begin_s), self.stats.generated_tokens,
            tuple(person.outcome for person in self.people.values()),
            self.stats.evictions, self.stats.recomputed_tokens, self.stats.loaded_tokens,
        )  # fmt: skip

    def pieces(self, key: str) -> list[str]:
        """Return what the model says of a request from where its client stands, as tokens."""
        if key in self.people:
            person = self.people[key]
            return answer(max(person.conversation.output_tokens - len(person.times_s), 1))
        work = self.robots[key].work
        gone = self._gone.get(key, 0)
        return replace(work, parts=work.parts[gone:]).pieces if gone else work.pieces

    def task(self, request: PlanRequest, plan: str, reason: str, done: str) -> str:
        """Return the task that asks for the rest of a plan, as a server words it."""
        return self._skill_set.recovery_text(request.task, plan, reason, done)

    def value(self, request: PlanRequest, value: str) -> str:
        """Return what a plan's text says of a value, as a server words it."""
        return self._skill_set.answer_text(value)

    def answer(self, request: StreamRequest, text: str, tokens: int) -> StreamRequest:
        """Return the request for the rest of an answer: a longer prompt."""
        talk = self.people[request.request_id].conversation
        goes_on = replace(
            talk,
            prompt_tokens=talk.prompt_tokens + tokens,
            max_tokens=max(request.max_tokens - tokens, 1),
        )
        return stream_request(goes_on, MAX_TOKENS)

    def _turn(self, server: _Server) -> None:
        """Let a server do what is next, and its clients take what it sent in its life."""
        events = server.turn(self._publish)
        if events:
            self._happened_s = max(self._happened_s, server.clock.now())
        for event in events:
            if event.t > server.dies_s:
                break
            self._pass_on(server.name, event)

    def _pass_on(self, server: str, event: RunEvent) -> None:
        """Let the clients take what happened at a server, as far as the front passes it on."""
        front, now = self._front, event.t
        match event:
            case SegmentEvent(segment=Segment() as segment):
                if front.serves(server, event.id):
                    self.stats.take(event)
                self._act(front.segment(server, segment, now), now)
            case ChunkEvent(chunk=StreamChunk() as chunk):
                for _ in front.chunk(server, chunk, now):
                    self._take([event])
            case EndEvent(result=result) if result is not None:
                self._act(front.ended(server, result, now), now)
            case _:
                key = getattr(event, "id", None)
                if key is None or front.serves(server, key):
                    self._take([event])

    def _publish(self, view: ServerView, made_s: float) -> None:
        """Send a view to the front."""
        self._at(made_s + self._network_s, partial(self._hear, view, made_s))

    def _hear(self, view: ServerView, made_s: float) -> None:
        view = replace(view, rtt_s=2.0 * self._network_s)
        self._act(self._front.heard(view, made_s, self._now))

    def _miss(self, server: str) -> None:
        self._act(self._front.lost(server, self._now))

    def _ask(self, request: Request, at_s: float) -> None:
        arrival_s = at_s + self._network_s
        self._happened_s = max(self._happened_s, arrival_s)
        if isinstance(request, StreamRequest):
            prompt = self.people[request.request_id].conversation.prompt_tokens
            waiting = Waiting(request, arrival_s, prompt, 1.0, float(request.max_tokens))
        else:
            waiting = Waiting(request, arrival_s, self._prompt_tokens)
        self._at(arrival_s, lambda: self._act(self._front.asked(waiting, arrival_s)))

    def _wake(self) -> None:
        self._wake_s = math.inf
        self._act(self._front.tick(self._now))

    def _act(self, actions: Sequence[Action] = (), now: float | None = None) -> None:
        """Carry out what the front asks for, and wake it when it wants that.

        Args:
            actions: of the front.
            now: when; None: at the time of the newest event.
        """
        now = self._now if now is None else now
        for action in actions:
            match action:
                case Send(waiting, name):
                    self._send(waiting, self._servers[name])
                case Withdraw(key, name):
                    take = partial(self._withdraw, key, self._servers[name])
                    self._servers[name].receive(now + self._network_s, take)
                case Cancel(key, name):
                    cancel = partial(
                        self._servers[name].loop.cancel, key, ErrorCode.CANCELED, "not needed"
                    )
                    self._servers[name].receive(now + self._network_s, cancel)
                case Tell(report, name):
                    server = self._servers[name]
                    server.receive(now, partial(server.loop.report, report))
                case Deliver(Segment() as segment):
                    self._execute(segment, now + self._network_s)
                case Finish(result):
                    code = result.error_code.name.lower()
                    end = EndEvent(now, result.request_id, code, result.error_msg, result)
                    self._take([end])
        if self._front.wake_s < self._wake_s:
            self._wake_s = self._front.wake_s
            self._at(self._wake_s, self._wake)

    def _send(self, one: Waiting, server: _Server) -> None:
        if one.key in self.robots:
            self._gone[one.key] = len(self.robots[one.key].executed)
        admit = partial(server.loop.admit, one.request, one.asked_s)
        server.receive(self._now + self._network_s, admit)

    def _withdraw(self, key: str, server: _Server) -> None:
        """Take a request from a server that has it, unless it has begun."""
        if not self._front.serves(server.name, key):
            return
        state = {g.key: g.state for g in server.loop.generations}.get(key)
        if state is State.QUEUED:
            self._front.withdrawn(key, server.name, server.clock.now() + self._network_s)
            self._act()
            server.loop.cancel(key, ErrorCode.CANCELED, "it moves to another server")
        else:
            self._front.stays(key, server.name)

    def _tell(self, report: ExecutionReport, at_s: float) -> None:
        self._at(at_s, lambda: self._act(self._front.report(report, at_s), at_s))

    def _place(self, segment: Segment) -> int:
        """Return the place of a segment; those of earlier epochs count before it."""
        return self._gone[segment.request_id] + segment.index

    def _true_s(self, robot: SimulatedRobot, segment: Segment) -> float:
        return robot.work.parts[self._place(segment)].true_s


def _next_s(server: _Server) -> float:
    return server.next_s


def simulate_servers(
    works: Sequence[JobInstance],
    conversations: Sequence[Conversation],
    servers: Sequence[SimulatedServer],
    policy: Callable[[], Policy],
    dispatcher: Dispatcher,
    moves: bool = True,
    hedge: bool = False,
) -> Run:
    """Return what robots and people get from several servers; the same each time.

    Args:
        works: plan requests with known segments, in order of arrival.
        conversations: in order of arrival.
        servers: at least one; the first's settings count for robots and the network.
        policy: returns a new policy for each server.
        dispatcher: a new one.
        moves: requests that have not begun may move to another server.
        hedge: urgent plans are asked of two servers.

    Raises:
        SimulationError: requests are left that no server serves.
    """
    settings = servers[0].settings
    arrivals_s = [w.arrival_s for w in works[:1]] + [c.arrival_s for c in conversations[:1]]
    begin_s = min(arrivals_s, default=0.0) - _FIRST_AT_S
    clients: _Clients

    made = []
    for spec in servers:
        clock = VirtualClock(begin_s)
        loop, name = simulated_loop(
            lambda key: clients.pieces(key), policy(), spec.settings, clock, works
        )
        made.append(_Server(spec, loop, clock))
    clients = _Clients(
        made, dispatcher, settings.network_s, settings.reports, moves, hedge,
        workload.skill_set(settings.shared_tokens, works),
        settings.shared_tokens + settings.own_tokens,
    )  # fmt: skip
    task = workload.task_text(settings.own_tokens)
    for work in works:
        clients.enter(work, request_for(work, name, task, settings))
    for talk in conversations:
        clients.enter_person(talk, stream_request(talk, MAX_TOKENS))
    return clients.serve()
