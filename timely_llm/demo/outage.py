"""What the end of one of several servers did to its requests."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

from timely_llm.core.events.history import History
from timely_llm.core.events.request_history import PlanHistory, RequestHistory, StreamHistory
from timely_llm.core.text import count_of


@dataclass(frozen=True)
class Outage:
    """A server that was gone for a while.

    Attributes:
        server: its name.
        gone_s, back_s: when it ended and was ready again, seconds since the first request; not a
            number: it did not come back.
        requests: that it had when it ended.
        elsewhere: those of them that went on at another server.
        at_itself: those that went on at the server itself, in its next life.
        without_end: those that ended with an error, or not at all.
    """

    server: str
    gone_s: float
    back_s: float
    requests: int
    elsewhere: int
    at_itself: int
    without_end: int

    def as_json(self) -> dict[str, Any]:
        """Return what `--json` writes; a time that never came is null."""
        times = {"gone_s": self.gone_s, "back_s": self.back_s}
        known = {name: round(at, 3) if math.isfinite(at) else None for name, at in times.items()}
        return {**asdict(self), **known}

    def __str__(self) -> str:
        """Return what happened, in sentences."""
        back = "did not come back"
        if math.isfinite(self.back_s):
            back = f"served again at {self.back_s:.1f} s"
        said = f"{self.server} was killed at {self.gone_s:.1f} s and {back}."
        if not self.requests:
            return f"{said} It had no requests then."
        complete = self.requests - self.elsewhere - self.at_itself - self.without_end
        parts = [
            (self.elsewhere, "went on at other servers"),
            (self.at_itself, f"went on at {self.server} itself"),
            (complete, "needed no server any more"),
            (self.without_end, "ended with an error or not at all"),
        ]
        words = ", ".join(f"{count} {what}" for count, what in parts if count)
        requests = count_of(self.requests, "request")
        kept = "" if self.without_end else ": nothing was lost"
        return f"{said} Of the {requests} that it had, {words}{kept}."


def outages(history: History) -> list[Outage]:
    """Return the outages of all servers, in order of time."""
    works: list[PlanHistory | StreamHistory] = [*history.asked, *history.questions]
    found = [
        _outage(history, name, gone_s, back_s, [w for w in works if _had(w, name, gone_s)])
        for name, server in history.servers.items()
        for gone_s, back_s in server.outages
    ]
    return sorted(found, key=lambda outage: outage.gone_s)


def _had(work: PlanHistory | StreamHistory, server: str, at_s: float) -> bool:
    """Return whether a server had a request at a time: it had taken it, and not ended it."""
    if work.server_at(at_s) != server:
        return False
    ended_s = min(_or_never(work.end_s), work.outcome.t if work.outcome else math.inf)
    return ended_s > at_s


def _or_never(at_s: float) -> float:
    return math.inf if math.isnan(at_s) else at_s


def _outage(
    history: History, name: str, gone_s: float, back_s: float,
    works: list[PlanHistory | StreamHistory],
) -> Outage:  # fmt: skip
    lost = [work for work in works if work.outcome is None or work.outcome.is_error]
    kept = [work for work in works if work not in lost]
    after = [_next_server(work, gone_s) for work in kept]
    back_s = back_s if math.isfinite(back_s) else math.nan
    origin_s = history.origin_s
    return Outage(
        name, gone_s - origin_s, back_s - origin_s, len(works),
        sum(server not in ("", name) for server in after), after.count(name), len(lost),
    )  # fmt: skip


def _next_server(work: RequestHistory, at_s: float) -> str:
    """Return the server that took a request next after a time; empty: none did."""
    return next((name for taken_s, name in work.taken if taken_s > at_s), "")
