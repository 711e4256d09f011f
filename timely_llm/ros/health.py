"""The server's health, as `/diagnostics` shows it: every level has a fact behind it."""

from __future__ import annotations

import math
import threading
from collections import deque

from diagnostic_msgs.msg import DiagnosticStatus, KeyValue

from timely_llm import msg
from timely_llm.core.request import ErrorCode, PlanResult, Result
from timely_llm.core.stream import StreamResult

RECENT = 64
"""Plans and answers that the late share is of."""
FEW = 8
"""Fewer of them than this say nothing about a share."""
FAILURE_S = 60.0
"""How long a failure of the engine is remembered."""
SILENCE_S = 5.0
"""A thread of the engine that has not answered for so long is stuck."""
BUSY_SHARE = 0.9
FREE_KV_SHARE = 0.05
LATE_SHARE = 0.25
DURATION_ERROR = 0.5


class Health:
    """Gathers facts, from any thread, and judges them.

    Args:
        name: the node's full name.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = threading.Lock()
        self._conflict = ""
        self.configured("", 1, 1, 0.0)

    def configured(self, engine: str, max_requests: int, kv_tokens: int, now: float) -> None:
        """Begin anew with an engine and its limits."""
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
        """Take note that the server cannot serve any more, and why."""
        with self._lock:
            self._problem = problem

    def conflict(self, problem: str) -> None:
        """Take note that other servers have the name too; empty: none has."""
        with self._lock:
            self._conflict = problem

    def seen(self, stats: msg.ServerStats, now: float) -> None:
        """Take what the engine's thread has counted; that it did means that it lives."""
        with self._lock:
            self._stats, self._seen_s = stats, now

    def ended(self, result: Result, now: float) -> None:
        """Take note how a request ended."""
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
        found = [self._conflict] if self._conflict else []
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
    """Return whether a request was served too late, None if its end says nothing about that."""
    if result.error_code is ErrorCode.EXPIRED:
        return True
    if isinstance(result, PlanResult) and result.response_s >= 0:
        return result.utility < 0
    if isinstance(result, StreamResult) and result.error_code is ErrorCode.NONE:
        return not result.slo_met
    return None
