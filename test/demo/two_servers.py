"""A run of two servers, written by hand: s2 is killed at 2 s, and plan a1 goes on at s1."""

from __future__ import annotations

from typing import Any

from test.core.events.lines import event
from test.demo.test_summary import ask, done, segment
from timely_llm.demo.cloud import DemoHistory

KILLED_S, BACK_S = 2.0, 5.0
Said = tuple[str, dict[str, Any]]


def taken(t: float, request_id: str) -> dict[str, Any]:
    return {"event": "request", "t": t, "id": request_id, "agent": request_id[0], "ert_s": 1.0}


def step(t: float, *ids: str) -> dict[str, Any]:
    return {"event": "step", "t": t, "s": 0.02, "ids": list(ids)}


def end(t: float, request_id: str, code: str = "none") -> dict[str, Any]:
    return {"event": "end", "t": t, "id": request_id, "code": code}


RUN: tuple[Said, ...] = (
    *((name, {"event": kind, "t": t}) for name in ("s1", "s2")
      for kind, t in (("opened", 0.0), ("ready", 0.5))),
    ("", {"event": "robot", "t": 0.9, "agent": "a"}),
    ("", {"event": "robot", "t": 0.9, "agent": "b"}),
    ("", ask(1.0, "a1", True)), ("s2", taken(1.0, "a1")), ("s2", step(1.1, "a1")),
    ("", ask(1.0, "b1", False)), ("s1", taken(1.1, "b1")), ("s1", step(1.11, "b1")),
    ("s1", step(1.13, "b1")), ("s2", step(1.12, "a1")), ("s2", segment(1.14, "a1", 0, 2.0)),
    ("s1", end(1.5, "b1")), ("", done(1.6, "b1", 0.2)),
    ("s1", taken(4.0, "a1")), ("s1", step(4.1, "a1")),
    ("s2", {"event": "opened", "t": 4.5}), ("s2", {"event": "ready", "t": BACK_S}),
    ("s1", end(5.5, "a1")), ("", done(6.0, "a1", 0.3)),
)  # fmt: skip


def run_until(until_s: float = 10.0, *, watched: bool = True) -> DemoHistory:
    """Return the run's history up to a time; `watched`: the demo saw when s2 was killed."""
    made = DemoHistory()
    for server, line in RUN:
        if line["t"] > until_s:
            break
        if watched and line["t"] > KILLED_S and not made.servers["s2"].outages:
            made.servers["s2"].gone(KILLED_S)
        made.add(event(line), server)
    if watched and until_s > KILLED_S and not made.servers["s2"].outages:
        made.servers["s2"].gone(KILLED_S)
    return made
