"""The history of a run: what the events of its server and its clients say, in one place.

A demo, its live view, reports and the timelines of experiments read this one model.
"""

from __future__ import annotations

import math
from collections import defaultdict

from timely_llm.core.events.decisions import Decisions
from timely_llm.core.events.request_history import (
    ABOUT_PLANS,
    ABOUT_STREAMS,
    DeliveredSegment,
    PlanHistory,
    RequestHistory,
    StepRecord,
    StreamHistory,
)
from timely_llm.core.events.run_event import RunEvent
from timely_llm.core.events.schema import (
    EndEvent,
    PersonEvent,
    PlanRequestEvent,
    ReadyEvent,
    RobotEvent,
    StepEvent,
    StreamEvent,
)
from timely_llm.core.events.server_history import ServerHistory


class History:
    """Takes the events of all logs, in any interleaving, and keeps each request's state.

    An end does not say whether it is of a plan or of an answer. If it comes first, it is kept until
    another event of its request says so.

    Attributes:
        ready_s: when the server was ready; None: no log says it.
        servers: one of several servers by name; without names there is one.
        began_s: when the first robot or person began; None: none did.
        robots: their names.
        people: name of the service level by name.
        requests: plans by request id.
        talks: answers by request id.
        steps: steps of the engine, in order.
        published: segments and their plans, in order.
        decisions: reasons of the step plans.
        end_s: time of the newest event.
    """

    def __init__(self) -> None:
        self.ready_s: float | None = None
        self.servers: defaultdict[str, ServerHistory] = defaultdict(ServerHistory)
        self.began_s: float | None = None
        self.robots: list[str] = []
        self.people: dict[str, str] = {}
        self.requests: dict[str, PlanHistory] = {}
        self.talks: dict[str, StreamHistory] = {}
        self.steps: list[StepRecord] = []
        self.published: list[tuple[PlanHistory, DeliveredSegment]] = []
        self.decisions = Decisions()
        self.end_s = -math.inf
        self._ends: dict[str, EndEvent] = {}  # of requests that no other event was about so far

    @property
    def asked(self) -> list[PlanHistory]:
        """The requests that robots of the fleet asked, in order."""
        return [r for r in self.requests.values() if not math.isnan(r.asked_s)]

    @property
    def served(self) -> int:
        """How many requests have had their first segment executed."""
        return sum(bool(r.calls) or bool(r.outcome and r.outcome.served) for r in self.asked)

    @property
    def questions(self) -> list[StreamHistory]:
        """What people asked, in order; a question that was asked again counts once."""
        return [
            t
            for t in self.talks.values()
            if not (math.isnan(t.asked_s) or (t.outcome and t.outcome.outcome == "forgotten"))
        ]

    @property
    def origin_s(self) -> float:
        """When the first request was asked; pictures begin there."""
        asked_s = [work.asked_s for work in (*self.asked, *self.questions)]
        return min(asked_s, default=self.ready_s or 0.0)

    def request(self, request_id: str) -> RequestHistory | None:
        """Return what is known of a plan, of an answer, or of an end alone; None: nothing."""
        known = self.talks.get(request_id) or self.requests.get(request_id)
        if known is None and request_id in self._ends:
            end_s = self._ends[request_id].t
            return RequestHistory(request_id, generated=True, end_s=end_s)
        return known

    def plan(self, request_id: str) -> PlanHistory:
        """Return what is known of a plan; of a refused one, its end."""
        if request_id in self.requests:
            return self.requests[request_id]
        plan = PlanHistory(request_id)
        if request_id in self._ends:
            plan.add(self._ends[request_id])
        return plan

    def current(self, agent: str) -> PlanHistory | None:
        """Return what a robot works on, or None if it is idle."""
        mine = [r for r in self.asked if r.agent == agent and r.outcome is None]
        return mine[-1] if mine else None

    def talks_of(self, agent: str) -> list[StreamHistory]:
        """Return what a person asked, in order."""
        return [talk for talk in self.questions if talk.agent == agent]

    def made_by(self, server: str) -> list[RequestHistory]:
        """Return the plans and answers of which one of several servers makes more."""
        works: list[RequestHistory] = [*self.asked, *self.questions]
        return [work for work in works if work.server == server and not work.generated]

    def recent_steps(self, since_s: float, server: str = "") -> list[StepRecord]:
        """Return the steps that ended after `since_s`, of all servers or of one."""
        recent = []
        for step in reversed(self.servers[server].steps if server else self.steps):
            if step.end_s < since_s:
                break
            recent.append(step)
        return recent

    def add(self, event: RunEvent, server: str = "") -> None:
        """Take an event; kinds that the history does not need are ignored.

        Args:
            event: of any log; events of several servers come in order of time.
            server: name of the server, if the event is of the log of one of several.
        """
        self.end_s = max(self.end_s, event.t)
        self.decisions.add(event)
        if server:
            self.servers[server].add(event)
            if self._is_elsewhere(event, server):
                return
        match event:
            case ReadyEvent():
                self.ready_s = event.t
            case RobotEvent():
                self.robots.append(event.agent)
                self._began(event)
            case PersonEvent():
                self.people[event.agent] = event.slo_class
                self._began(event)
            case StepEvent():
                self._step(event, server)
            case EndEvent() if event.id in self.talks:
                self.talks[event.id].add(event)
            case EndEvent() if event.id not in self.requests:
                self._ends[event.id] = event
            case _ if isinstance(event, ABOUT_STREAMS):
                talk = self.talks.setdefault(event.id, StreamHistory(event.id))
                talk.add(event)
                if server and isinstance(event, StreamEvent):
                    talk.goes_on_at(server, event.t)
                if event.id in self._ends:
                    talk.add(self._ends.pop(event.id))
            case _ if isinstance(event, ABOUT_PLANS) and self._whole(event.id) is None:
                request = self._plan(event.id)
                delivered = len(request.delivered)
                request.add(event)
                if server and isinstance(event, PlanRequestEvent):
                    request.goes_on_at(server, event.t)
                self.published += [(request, made) for made in request.delivered[delivered:]]
                if event.id in self._ends:
                    request.add(self._ends.pop(event.id))

    def _began(self, event: RunEvent) -> None:
        self.began_s = event.t if self.began_s is None else min(self.began_s, event.t)

    def _is_elsewhere(self, event: RunEvent, server: str) -> bool:
        """Return whether an event is a server's last word about a request that another one has."""
        if not isinstance(event, EndEvent):
            return False
        known = self.request(event.id)
        return known is not None and known.server not in ("", server)

    def _step(self, event: StepEvent, server: str) -> None:
        step = StepRecord(event.t, event.s, event.ids, server, event.stages)
        steps = self.servers[server].steps if server else self.steps
        for request_id in event.ids:
            # The server logs a conversation's request before its first step.
            work: RequestHistory = (
                self._whole(request_id) or self.talks.get(request_id) or self._plan(request_id)
            )
            work.took_part(step, len(steps))
        self.steps.append(step)
        if server:
            steps.append(step)

    def _whole(self, request_id: str) -> StreamHistory | PlanHistory | None:
        """Return what a cloud helps with and a request to the server is a part of; None: none."""
        name, is_part, _ = request_id.rpartition("~")
        whole = self.talks.get(name) or self.requests.get(name) if is_part else None
        return whole if whole and whole.asks_help else None

    def _plan(self, request_id: str) -> PlanHistory:
        return self.requests.setdefault(request_id, PlanHistory(request_id))
