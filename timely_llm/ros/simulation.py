"""Robots' time, which is that of /clock with `use_sim_time`."""

from __future__ import annotations

import time

from rclpy.clock import JumpThreshold, ROSClock, TimeJump
from rclpy.duration import Duration
from rclpy.node import Node

from timely_llm.core.clock import SimulatedClock

UNHEARD_S = 5.0
"""Longest time from the start, or from setting `use_sim_time`, to the first /clock, seconds."""
STANDS_S = 1.0
"""A clock that stands still for this time is logged, seconds."""
LOOK_S = 0.01
_ANY = JumpThreshold(
    min_forward=Duration(nanoseconds=1), min_backward=Duration(nanoseconds=-1), on_clock_change=True
)


class Simulation:
    """Follows a node's clock, which follows /clock while the node's `use_sim_time` is true.

    Without `use_sim_time`, robots' time is that of the machine's monotonic clock.

    Args:
        node: the node; its parameter may change at any time.

    Attributes:
        node: the node of the clock.
        clock: maps the machine's monotonic clock to robots' time.
    """

    def __init__(self, node: Node) -> None:
        self.node = node
        ros_clock = node.get_clock()
        assert isinstance(ros_clock, ROSClock)
        self._ros_clock = ros_clock
        self.clock = SimulatedClock(self._ros_clock.ros_time_is_active, time.monotonic())
        self._jumps = 0
        self._unheard = self._stands = False
        self._moved_s = time.monotonic()
        # rclpy's own subscription to /clock sets the node's clock, which calls back.
        self._handle = self._ros_clock.create_jump_callback(_ANY, post_callback=self._on_time)

    def seconds(self) -> float:
        """Return robots' time in seconds since an arbitrary moment; it never goes back."""
        return self.clock.robot_s(time.monotonic())

    def await_clock(self, timeout_s: float) -> None:
        """Wait for the first /clock message if time is simulated; another thread spins the node.

        Args:
            timeout_s: the longest time, seconds of the wall.
        """
        end_s = time.monotonic() + timeout_s
        while self.clock.unheard_s(time.monotonic()) and time.monotonic() < end_s:
            time.sleep(LOOK_S)

    def problem(self, now: float) -> str:
        """Return the fault of /clock in one sentence; empty: there is none.

        Args:
            now: seconds on the machine's monotonic clock.
        """
        unheard_s = self.clock.unheard_s(now)
        if unheard_s < UNHEARD_S:
            return ""
        return (
            f"use_sim_time is true and /clock was not heard for {unheard_s:.0f} s: robots' time"
            " stands still until the simulator runs"
        )

    def described(self, now: float) -> str:
        """Return the name and rate of robots' clock."""
        if not self.clock.simulated:
            return "wall"
        if self.clock.unheard_s(now):
            return "/clock, not heard yet"
        rate = self.clock.rate(now)
        return f"/clock, at {rate:.2f} of the wall's rate" if rate else "/clock, stands still"

    def log_changes(self, now: float) -> None:
        """Log each change: /clock is missing, was set, stands still or goes on."""
        log = self.node.get_logger()
        problem = self.problem(now)
        if problem and not self._unheard:
            log.warning(problem)
        elif self._unheard and not problem:
            log.info("/clock is heard")
        self._unheard = bool(problem)
        jumps = self.clock.jumps
        if jumps != self._jumps:
            self._jumps = jumps
            log.warning(
                f"/clock was set by {self.clock.last_jump_s:+.1f} s: that is no time that passed,"
                " and plans go on from where they were"
            )
        if not self.clock.simulated or self.clock.rate(now) or self.clock.unheard_s(now):
            self._moved_s = now
            if self._stands:
                log.info("robots' time goes on")
            self._stands = False
        elif not self._stands and now - self._moved_s > STANDS_S:
            self._stands = True
            log.info("/clock stands still: what robots' time decides waits")

    def _on_time(self, jump: TimeJump) -> None:
        now = time.monotonic()
        self.clock.switch(self._ros_clock.ros_time_is_active, now)
        shows_ns = self._ros_clock.now().nanoseconds
        if self.clock.simulated and shows_ns:  # 0: there is no time yet
            self.clock.update(shows_ns * 1e-9, now)
