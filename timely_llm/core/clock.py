"""Clocks of the loop (wall and virtual), and robots' time on them."""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeVar

T = TypeVar("T")


class Clock(Protocol):
    """Seconds since an arbitrary moment; never goes back."""

    def now(self) -> float:
        """Return the time in seconds."""
        ...


class WallClock:
    """The machine's monotonic clock."""

    def now(self) -> float:
        """Return monotonic seconds."""
        return time.monotonic()


class VirtualClock:
    """A clock for experiments; it moves only by `advance`."""

    def __init__(self, now_s: float = 0.0) -> None:
        self._now_s = now_s

    def now(self) -> float:
        """Return virtual seconds."""
        return self._now_s

    def advance(self, seconds: float) -> None:
        """Let `seconds` pass.

        Raises:
            ValueError: `seconds` is negative.
        """
        if seconds < 0:
            raise ValueError(f"time goes forward only, not by {seconds} s")
        self._now_s += seconds


STILL = 1e-6
"""Rate of a clock that stands still: nothing becomes due, and all times stay finite."""


@dataclass(frozen=True, slots=True)
class RobotTime:
    """Robots' time on the loop's clock, as a line through one moment.

    Attributes:
        rate: robots' seconds per second of the loop, above 0.
        loop_s, robot_s: one moment on both clocks.
    """

    rate: float = 1.0
    loop_s: float = 0.0
    robot_s: float = 0.0

    def to_robot(self, loop_s: float) -> float:
        """Convert a moment of the loop's clock to robots' clock; both in seconds."""
        return self.robot_s + (loop_s - self.loop_s) * self.rate

    def to_loop(self, robot_s: float) -> float:
        """Convert a moment of robots' clock to the loop's clock; both in seconds."""
        return self.loop_s + (robot_s - self.robot_s) / self.rate


SAME = RobotTime()
"""Robots' time is the loop's time."""


class RobotClock(Protocol):
    """A source of robots' time."""

    def time(self, now: float) -> RobotTime:
        """Return robots' time at `now`, seconds of the loop's clock."""
        ...


WINDOW_S = 1.0
"""The rate is measured over this time before the last message, seconds; over three at least."""
LEAST_SPAN_S = 0.05
"""Messages within less than this time give no rate, seconds."""
QUIET_S = 0.3
"""A clock stands still after this silence, or after three times its usual gap, seconds."""
LEAP_S = 60.0
"""Seconds between two messages above which the clock was set, so that no time has passed."""
_GAPS = 5
_FEWEST = 3


class SimulatedClock:
    """Follows a simulator's clock by its messages; usable from any thread.

    Robots' time goes on only while that clock does. It never goes back: after a reset of the
    simulator, due times are as far away as before. It stands still until the second message.
    Without a simulator it is the loop's own time.

    Args:
        simulated: whether robots' time is a simulator's.
        now: seconds on the loop's clock.

    Attributes:
        jumps: number of times that the clock was set, back or far ahead.
        last_jump_s: size of the last jump, seconds.
    """

    def __init__(self, simulated: bool = True, now: float = 0.0) -> None:
        self._lock = threading.Lock()
        self._simulated = False
        self._wall = SAME
        self._begin_s = now
        self._shown_s = -math.inf
        self.jumps = 0
        self.last_jump_s = 0.0
        if simulated:
            self.switch(simulated, now)

    @property
    def simulated(self) -> bool:
        """Whether robots' time is a simulator's."""
        return self._simulated

    def switch(self, simulated: bool, now: float) -> None:
        """Change to a simulator's time, or back to the loop's own; no time is lost or added."""
        if simulated == self._simulated:
            return
        robot_s = self.time(now).to_robot(now)
        with self._lock:
            self._simulated = simulated
            self._wall = RobotTime(1.0, now, robot_s)
            self._begin_s = now
            self._robot_s = robot_s
            self._shows_s: float | None = None
            self._updated_s = now
            self._rate: float | None = None
            self._words: deque[tuple[float, float]] = deque()
            self._gaps: deque[float] = deque(maxlen=_GAPS)

    def update(self, shows_s: float, now: float) -> None:
        """Take a message of the clock.

        Args:
            shows_s: seconds on the simulator's clock.
            now: seconds on the loop's clock; not before that of the last call.
        """
        with self._lock:
            if not self._simulated:
                return
            before_s, self._shows_s = self._shows_s, shows_s
            if before_s is None:
                self._begin_at(now)
                return
            passed_s = shows_s - before_s
            if passed_s == 0.0:
                return  # it stands still
            if not 0.0 < passed_s <= LEAP_S:
                self.jumps += 1
                self.last_jump_s = passed_s
                self._begin_at(now)
                return
            self._go_on(passed_s, now)

    def time(self, now: float) -> RobotTime:
        """Return robots' time at `now`, seconds of the loop's clock."""
        if not self._simulated:
            return self._wall
        with self._lock:
            if self._rate is None or now - self._updated_s > self._quiet_s:
                return RobotTime(STILL, now, self._robot_s)
            return RobotTime(self._rate, self._updated_s, self._robot_s)

    def robot_s(self, now: float) -> float:
        """Return robots' seconds at `now`, for measuring durations; they never go back."""
        robot_s = self.time(now).to_robot(now)
        with self._lock:
            self._shown_s = max(self._shown_s, robot_s)
            return self._shown_s

    def rate(self, now: float) -> float:
        """Return the simulator's seconds per second of the loop; 0: it stands still."""
        rate = self.time(now).rate
        return 0.0 if rate == STILL else rate

    def unheard_s(self, now: float) -> float:
        """Return the seconds without any message of the simulator's clock; 0: there was one."""
        with self._lock:
            nothing = self._simulated and self._shows_s is None
            return now - self._begin_s if nothing else 0.0

    @property
    def _quiet_s(self) -> float:
        # The median, so that one pause does not count.
        gaps_s = sorted(self._gaps)
        return max(QUIET_S, 3.0 * gaps_s[len(gaps_s) // 2]) if gaps_s else QUIET_S

    def _begin_at(self, now: float) -> None:
        self._words.clear()
        self._words.append((now, self._robot_s))
        self._updated_s = now

    def _go_on(self, passed_s: float, now: float) -> None:
        silence_s = now - self._updated_s
        stood = silence_s > self._quiet_s
        self._gaps.append(silence_s)
        self._robot_s += passed_s
        if stood and silence_s > self._quiet_s:  # the new gap counted too
            self._begin_at(now)
            if self._rate is None:
                self._rate = 1.0
            return
        self._updated_s = now
        self._words.append((now, self._robot_s))
        while len(self._words) > _FEWEST and self._words[1][0] <= now - WINDOW_S:
            self._words.popleft()
        (first_s, from_s), (last_s, to_s) = self._words[0], self._words[-1]
        if last_s - first_s >= LEAST_SPAN_S:
            self._rate = max((to_s - from_s) / (last_s - first_s), 2.0 * STILL)
        elif self._rate is None:
            self._rate = 1.0
        if len(self._words) > 2 and now - self._words[-3][0] < WINDOW_S / 64:
            del self._words[-2]  # bounds memory for a clock of 1000 messages a second


def timed(work: Callable[[], T]) -> tuple[T, float, float]:
    """Call `work`; return its result, its seconds, and the CPU seconds of all threads."""
    wall_s, cpu_s = time.perf_counter(), time.process_time()
    made = work()
    return made, time.perf_counter() - wall_s, time.process_time() - cpu_s
