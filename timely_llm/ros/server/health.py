"""The server's health as `/diagnostics` shows it, and its statistics."""

from __future__ import annotations

import copy
import math
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

from builtin_interfaces.msg import Time
from diagnostic_msgs.msg import DiagnosticStatus, KeyValue

from timely_llm import msg
from timely_llm.core.request import ErrorCode, PlanResult, Result, StreamResult
from timely_llm.ros.conversions import stats_message
from timely_llm.serving.loop import Loop
from timely_llm.serving.publisher import Stats
from timely_llm.serving.server.statistics import statistics


def stats(loop: Loop, counts: Stats, stamp: Time) -> msg.ServerStats:
    """Return a loop's state, and the counts and recent times of its events, as a message."""
    made = stats_message(statistics(loop, counts))
    made.stamp = stamp
    return made


RECENT = 64
"""Number of the last plans and answers in the late share."""
FEW = 8
"""Least number of them for a warning about the share."""
FAILURE_S = 60.0
"""Time for which a failure of the engine is shown, seconds."""
SILENCE_S = 5.0
"""An engine's thread without an answer for this time is stuck, seconds."""
BUSY_SHARE = 0.9
FREE_KV_SHARE = 0.05
LATE_SHARE = 0.25
DURATION_ERROR = 0.5


class Health:
    """Collects the facts of the server's health, from any thread, and returns its status.

    Args:
        name: the node's full name.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = threading.Lock()
        self._conflict = self._clock_problem = self._journal_problem = ""
        self._clock = "wall"
        self.configured("", 1, 1, 0.0)

    def configured(self, engine: str, max_requests: int, kv_tokens: int, now: float) -> None:
        """Start again with an engine and its limits."""
        with self._lock:
            self._engine = engine
            self._max_requests = max_requests
            self._kv_tokens = kv_tokens
            self._stats = msg.ServerStats()
            self._seen_s = now
            self._failed_s = -math.inf
            self._late: deque[bool] = deque(maxlen=RECENT)
            self._problem = ""

    def lost(self, problem: str) -> None:
        """Record why the server cannot serve any more."""
        with self._lock:
            self._problem = problem

    def conflict(self, problem: str) -> None:
        """Record that other servers have the name too; empty: none has."""
        with self._lock:
            self._conflict = problem

    def journal(self, problem: str) -> None:
        """Record why the recovery journal is not written any more; empty: it is."""
        with self._lock:
            self._journal_problem = problem

    def clock(self, problem: str, described: str) -> None:
        """Record robots' clock: its fault, empty if there is none, and its description."""
        with self._lock:
            self._clock_problem, self._clock = problem, described

    def seen(self, stats: msg.ServerStats, now: float) -> None:
        """Record the statistics of the engine's thread; they show that it is alive."""
        with self._lock:
            self._stats, self._seen_s = stats, now

    def ended(self, result: Result, now: float) -> None:
        """Record how a request ended."""
        with self._lock:
            if result.error_code is ErrorCode.ENGINE_FAILED:
                self._failed_s = now
            late = _late(result)
            if late is not None:
                self._late.append(late)

    def status(self, now: float, state: str) -> DiagnosticStatus:
        """Return the server's status.

        Args:
            now: seconds on the clock of the other calls.
            state: of the node's life cycle.
        """
        with self._lock:
            errors, warnings = self._errors(now, state), self._warnings(state)
            values = self._values(state)
        level = DiagnosticStatus.OK
        if errors or warnings:
            level = DiagnosticStatus.ERROR if errors else DiagnosticStatus.WARN
        return DiagnosticStatus(
            level=level,
            name=f"{self._name.lstrip('/')}: serving",
            message="; ".join(errors + warnings) or "serving",
            hardware_id=self._engine,
            values=[KeyValue(key=key, value=value) for key, value in values.items()],
        )

    def _errors(self, now: float, state: str) -> list[str]:
        if self._problem:
            return [self._problem]
        found = [one for one in (self._conflict, self._journal_problem) if one]
        if state in ("active", "inactive") and now - self._seen_s > SILENCE_S:
            found.append(f"the engine's thread has not answered for {now - self._seen_s:.0f} s")
        if now - self._failed_s < FAILURE_S:
            found.append(f"the engine failed {now - self._failed_s:.0f} s ago")
        return found

    def _warnings(self, state: str) -> list[str]:
        stats = self._stats
        found = []
        if state != "active":
            found.append(f"the server is {state}")
        if self._clock_problem:
            found.append(self._clock_problem)
        if self._served >= BUSY_SHARE * self._max_requests:
            found.append(f"{self._served} of at most {self._max_requests} requests are served")
        if state == "active" and stats.steps and self._free_kv < FREE_KV_SHARE:
            found.append(f"{self._free_kv:.0%} of the KV memory is free")
        if stats.duration_error > DURATION_ERROR:
            found.append(f"execution times are mispredicted by {stats.duration_error:.0%}")
        if len(self._late) >= FEW and self._late_share > LATE_SHARE:
            found.append(
                f"{self._late_share:.0%} of the last {len(self._late)} requests were served late"
            )
        return found

    def _values(self, state: str) -> dict[str, str]:
        stats = self._stats
        return {
            "state": state,
            "requests served": f"{self._served} of {self._max_requests}",
            "requests queued": str(stats.queued),
            "requests failed": str(stats.failed),
            "free KV": f"{self._free_kv:.1%}",
            "step time (s)": f"{stats.step_time:.4f}",
            "response p95 (s)": f"{stats.response_p95:.3f}",
            "late share": f"{self._late_share:.1%}",
            "duration error": f"{stats.duration_error:.1%}",
            "replans": str(stats.replans),
            "evictions": str(stats.evictions),
            "robots' clock": self._clock,
            "right guesses": f"{stats.right_guesses} of {stats.guessed_tokens}",
        }

    @property
    def _served(self) -> int:
        stats = self._stats
        served: int = stats.queued + stats.running + stats.suspended + stats.blocked
        return served

    @property
    def _free_kv(self) -> float:
        free: float = self._stats.free_kv_tokens / self._kv_tokens
        return free

    @property
    def _late_share(self) -> float:
        return sum(self._late) / max(len(self._late), 1)


def _late(result: Result) -> bool | None:
    """Return whether a request was served too late; None: its result does not show that."""
    if result.error_code is ErrorCode.EXPIRED:
        return True
    if isinstance(result, PlanResult) and result.response_s >= 0:
        return result.utility < 0
    if isinstance(result, StreamResult) and result.error_code is ErrorCode.NONE:
        return not result.slo_met
    return None


StatsMessage = Any
AskStats = Callable[[Callable[[StatsMessage], None]], None]


class StatsFeed:
    """Publishes the statistics once a period.

    Args:
        publish: publishes a message; called from this thread or the loop's.
        stamp: returns the stamp of a message that is published again.
    """

    def __init__(self, publish: Callable[[StatsMessage], None], stamp: Callable[[], Any]) -> None:
        self._publish = publish
        self._stamp = stamp
        self._lock = threading.Lock()
        self._next_s = 0.0
        self._begin(0)

    def _begin(self, life: int) -> None:
        self._life = life
        self._last: StatsMessage | None = None
        self._waits = self._wanted = False

    def restart(self) -> None:
        """Forget the last statistics: another loop counts from now on."""
        with self._lock:
            self._begin(self._life + 1)

    def wait_s(self, now: float) -> float:
        """Return the seconds until a message is due."""
        return max(self._next_s - now, 0.0)

    def tick(self, now: float, period_s: float, count: AskStats) -> None:
        """Publish if a message is due.

        Args:
            now: seconds.
            period_s: time between two messages, seconds.
            count: asks the loop's thread for new statistics.
        """
        if now < self._next_s:
            return
        self._next_s += period_s
        if self._next_s <= now:  # the first one, or this process was delayed
            self._next_s = now + period_s
        with self._lock:
            asks = not self._waits
            self._waits = True
            self._wanted = asks or self._last is None
            again = None if asks or self._last is None else copy.copy(self._last)
            life = self._life
        if again is not None:
            again.stamp = self._stamp()
            self._publish(again)
        if asks:
            count(lambda stats: self._counted(stats, life))

    def _counted(self, stats: StatsMessage, life: int) -> None:
        with self._lock:
            if life != self._life:
                return
            self._last, self._waits = stats, False
            wanted = self._wanted
        if wanted:
            self._publish(stats)
