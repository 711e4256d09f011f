"""What happened in a run, put together from the server's journal and the logs of its clients."""

from __future__ import annotations

import math

from timely_llm.demo.requests import Delivered, Request
from timely_llm.demo.steps import Step, Work
from timely_llm.demo.talks import Talk
from timely_llm.processes.log_reader import Event

_ABOUT_REQUESTS = frozenset(
    ("request", "ask", "segment", "report", "complete", "answer", "replan", "end", "call", "done")
)
_ABOUT_TALKS = frozenset(("stream", "question", "chunk", "answered"))


class History:
    """Takes events of all logs, in any interleaving, and keeps what they say."""

    def __init__(self) -> None:
        self.ready_s: float | None = None
        self.began_s: float | None = None
        self.robots: list[str] = []
        self.people: dict[str, str] = {}  # each with the service level
        self.requests: dict[str, Request] = {}
        self.talks: dict[str, Talk] = {}
        self.steps: list[Step] = []
        self.published: list[tuple[Request, Delivered]] = []
        self.end_s = -math.inf

    @property
    def asked(self) -> list[Request]:
        """The requests that robots of the fleet asked, in order."""
        return [r for r in self.requests.values() if not math.isnan(r.asked_s)]

    @property
    def served(self) -> int:
        """How many requests have had their first segment executed."""
        return sum(bool(r.calls) or bool(r.outcome and r.outcome.served) for r in self.asked)

    @property
    def questions(self) -> list[Talk]:
        """What people asked, in order; what they had to tell a second time only once."""
        return [
            t
            for t in self.talks.values()
            if not (math.isnan(t.asked_s) or (t.outcome and t.outcome.kind == "forgotten"))
        ]

    @property
    def origin_s(self) -> float:
        """When the first request was asked; pictures begin there."""
        asked_s = [work.asked_s for work in (*self.asked, *self.questions)]
        return min(asked_s, default=self.ready_s or 0.0)

    def current(self, agent: str) -> Request | None:
        """Return what a robot works on, or None if it is idle."""
        mine = [r for r in self.asked if r.agent == agent and r.outcome is None]
        return mine[-1] if mine else None

    def talks_of(self, agent: str) -> list[Talk]:
        """Return what a person asked, in order."""
        return [talk for talk in self.questions if talk.agent == agent]

    def recent_steps(self, since_s: float) -> list[Step]:
        """Return the steps that ended after `since_s`."""
        recent = []
        for step in reversed(self.steps):
            if step.end_s < since_s:
                break
            recent.append(step)
        return recent

    def add(self, event: Event) -> None:
        """Take an event; kinds that say nothing here are ignored."""
        self.end_s = max(self.end_s, event["t"])
        match event["event"]:
            case "ready":
                self.ready_s = event["t"]
            case "robot":
                self.robots.append(event["agent"])
                self._began(event)
            case "person":
                self.people[event["agent"]] = event["slo_class"]
                self._began(event)
            case "step":
                self._step(event)
            case kind if kind in _ABOUT_TALKS or event.get("id") in self.talks:
                self.talks.setdefault(event["id"], Talk(event["id"])).add(event)
            case kind if kind in _ABOUT_REQUESTS:
                self._about_request(event)

    def _began(self, event: Event) -> None:
        self.began_s = min(self.began_s or math.inf, event["t"])

    def _step(self, event: Event) -> None:
        step = Step(event["t"], event["s"], len(event["ids"]))
        for request_id in event["ids"]:
            # The server tells of a conversation's request before it tells of its steps.
            work: Work = self.talks.get(request_id) or self._request(request_id)
            work.took_part(step, len(self.steps))
        self.steps.append(step)

    def _request(self, request_id: str) -> Request:
        return self.requests.setdefault(request_id, Request(request_id))

    def _about_request(self, event: Event) -> None:
        request = self._request(event["id"])
        delivered = len(request.delivered)
        request.add(event)
        self.published += [(request, made) for made in request.delivered[delivered:]]
