"""What happened in a run, put together from the server's journal and the fleet's log."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from timely_llm.processes.log_reader import Event

RUNNING_S = 0.15
"""A generation counts as running for this long after its last step."""
REST_S = 0.05
"""An engine that makes no step for this long rests."""
_ABOUT_REQUESTS = frozenset(
    ("request", "ask", "segment", "report", "complete", "answer", "replan", "end", "call", "done")
)


@dataclass(frozen=True)
class Step:
    """One forward pass: start and duration in seconds, and how many sequences took part."""

    start_s: float
    duration_s: float
    sequences: int

    @property
    def end_s(self) -> float:
        """When it was over."""
        return self.start_s + self.duration_s


@dataclass
class Slice:
    """An unbroken run of steps of one generation, seconds."""

    start_s: float
    end_s: float
    last_step: int

    def goes_on_with(self, step: Step, number: int) -> bool:
        """Whether a step follows with neither another one nor a rest of the engine between."""
        return self.last_step == number - 1 and step.start_s - self.end_s < REST_S


@dataclass(frozen=True)
class Delivered:
    """A segment as the server published it; `due_s` is when it was needed."""

    index: int
    at_s: float
    due_s: float
    text: str


@dataclass(frozen=True)
class Call:
    """A skill being executed by a robot."""

    index: int
    text: str
    start_s: float
    duration_s: float

    @property
    def end_s(self) -> float:
        """When it will be over."""
        return self.start_s + self.duration_s


@dataclass(frozen=True)
class Outcome:
    """How a request ended for its robot; times in seconds, negative if nothing was executed."""

    at_s: float
    kind: str
    error_code: int
    error_msg: str
    response_s: float
    waiting_s: float
    utility: float
    recomputed_tokens: int

    @property
    def served(self) -> bool:
        """Whether the first segment was executed."""
        return self.response_s >= 0

    @property
    def is_error(self) -> bool:
        """Whether it went wrong; being dropped for something urgent is no error."""
        return self.kind in ("error", "failed")


@dataclass
class Request:
    """One request of one robot.

    Attributes:
        due_s: when its next segment is needed.
        blocked: its generation waits for a skill's value.
        newest: epoch and index of the last segment.
    """

    id: str
    agent: str = ""
    urgent: bool = False
    task: str = ""
    asked_s: float = math.nan
    ert_s: float = math.nan
    due_s: float = math.nan
    steps: int = 0
    generated: bool = False
    blocked: bool = False
    newest: tuple[int, int] = (0, -1)
    slices: list[Slice] = field(default_factory=list)
    delivered: list[Delivered] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    outcome: Outcome | None = None

    def generation(self, now_s: float) -> str:
        """Return queued, running, suspended, blocked or done."""
        if self.generated:
            return "done"
        if self.blocked:
            return "blocked"
        if not self.slices:
            return "queued"
        return "running" if self.slices[-1].end_s > now_s - RUNNING_S else "suspended"

    def call_at(self, now_s: float) -> Call | None:
        """Return the call that is being executed."""
        if self.calls and self.outcome is None and now_s < self.calls[-1].end_s:
            return self.calls[-1]
        return None

    def execution(self) -> list[Call]:
        """Return its calls, the last one cut where the request ended."""
        end_s = self.outcome.at_s if self.outcome else math.inf
        return [
            Call(c.index, c.text, c.start_s, min(c.end_s, end_s) - c.start_s)
            for c in self.calls
            if c.start_s < end_s
        ]

    def waits(self, now_s: float) -> list[tuple[float, float]]:
        """Return (start, end) of the times in which its robot had nothing to execute."""
        waits, free_s = [], self.asked_s
        for call in self.execution():
            waits.append((free_s, call.start_s))
            free_s = max(free_s, call.end_s)
        if self.outcome is None or self.outcome.kind != "finished":
            waits.append((free_s, self.outcome.at_s if self.outcome else now_s))
        return [(start_s, end_s) for start_s, end_s in waits if end_s - start_s > 0.01]


class History:
    """Takes events of both logs, in any interleaving, and keeps what they say."""

    def __init__(self) -> None:
        self.ready_s: float | None = None
        self.began_s: float | None = None
        self.robots: list[str] = []
        self.requests: dict[str, Request] = {}
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
    def origin_s(self) -> float:
        """When the first request was asked; pictures begin there."""
        return min((r.asked_s for r in self.asked), default=self.ready_s or 0.0)

    def current(self, agent: str) -> Request | None:
        """Return what a robot works on, or None if it is idle."""
        mine = [r for r in self.asked if r.agent == agent and r.outcome is None]
        return mine[-1] if mine else None

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
                self.began_s = self.began_s or event["t"]
            case "step":
                self._step(event)
            case kind if kind in _ABOUT_REQUESTS:
                self._about(self.requests.setdefault(event["id"], Request(event["id"])), event)

    def _step(self, event: Event) -> None:
        number = len(self.steps)
        step = Step(event["t"], event["s"], len(event["ids"]))
        self.steps.append(step)
        for request_id in event["ids"]:
            request = self.requests.setdefault(request_id, Request(request_id))
            request.steps += 1
            if request.slices and request.slices[-1].goes_on_with(step, number):
                request.slices[-1].end_s = step.end_s
                request.slices[-1].last_step = number
            else:
                request.slices.append(Slice(step.start_s, step.end_s, number))

    def _about(self, request: Request, event: Event) -> None:
        at_s: float = event["t"]
        match event["event"]:
            case "ask":
                request.agent, request.task = event["agent"], event["task"]
                request.asked_s, request.urgent = at_s, event["urgent"]
                request.ert_s = event["ert_s"]
            case "request":
                request.due_s = at_s + event["ert_s"]
            case "segment":
                self._segment(request, event)
            case "report":
                request.due_s = event["due_s"]
            case "answer":
                request.blocked = False
            case "replan":
                request.due_s, request.blocked, request.generated = event["due_s"], False, False
            case "complete" | "end":
                request.generated = True
            case "call":
                request.calls.append(Call(event["index"], event["call"], at_s, event["s"]))
            case "done":
                request.outcome = Outcome(
                    at_s, event["outcome"], event["error_code"], event["error_msg"],
                    event["response_s"], event["waiting_s"], event["utility"],
                    event["recomputed_tokens"],
                )  # fmt: skip

    def _segment(self, request: Request, event: Event) -> None:
        """Enter a segment; the last one may come again, only to say that it is the last."""
        place = (event["epoch"], event["index"])
        if place <= request.newest:
            return
        request.newest, request.blocked = place, event["blocking"]
        due_s, request.due_s = request.due_s, event["due_s"]
        delivered = Delivered(event["index"], event["t"], due_s, event["text"])
        request.delivered.append(delivered)
        self.published.append((request, delivered))
