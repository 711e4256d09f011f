"""One request of one robot: what was delivered of its plan, and what the robot did."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from timely_llm.demo.steps import Work
from timely_llm.processes.log_reader import Event


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
class Request(Work):
    """One request of one robot.

    Attributes:
        blocked: its generation waits for a skill's value.
        newest: epoch and index of the last segment.
    """

    urgent: bool = False
    task: str = ""
    ert_s: float = math.nan
    blocked: bool = False
    newest: tuple[int, int] = (0, -1)
    delivered: list[Delivered] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    outcome: Outcome | None = None

    def generation(self, now_s: float) -> str:
        """Return queued, running, suspended, blocked or done."""
        return "blocked" if self.blocked and not self.generated else super().generation(now_s)

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

    def add(self, event: Event) -> None:
        """Take an event about it; those that say nothing here are ignored."""
        at_s: float = event["t"]
        match event["event"]:
            case "ask":
                self.agent, self.task = event["agent"], event["task"]
                self.asked_s, self.urgent = at_s, event["urgent"]
                self.ert_s = event["ert_s"]
            case "request":
                self.due_s = at_s + event["ert_s"]
            case "segment":
                self._segment(event)
            case "report":
                self.due_s = event["due_s"]
            case "answer":
                self.blocked = False
            case "replan":
                self.due_s, self.blocked, self.generated = event["due_s"], False, False
            case "complete" | "end":
                self.generated = True
            case "call":
                self.calls.append(Call(event["index"], event["call"], at_s, event["s"]))
            case "done":
                self.outcome = Outcome(
                    at_s, event["outcome"], event["error_code"], event["error_msg"],
                    event["response_s"], event["waiting_s"], event["utility"],
                    event["recomputed_tokens"],
                )  # fmt: skip

    def _segment(self, event: Event) -> None:
        """Enter a segment; the last one may come again, only to say that it is the last."""
        place = (event["epoch"], event["index"])
        if place <= self.newest:
            return
        self.newest, self.blocked = place, event["blocking"]
        due_s, self.due_s = self.due_s, event["due_s"]
        self.delivered.append(Delivered(event["index"], event["t"], due_s, event["text"]))
