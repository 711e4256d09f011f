"""A simulator in so far as robots' time is concerned: publishes /clock at a real-time factor.

It follows the topic `/factor`: 0 stops the clock, a negative factor sets it back to 1 s first.
"""

from __future__ import annotations

import sys
import time

from builtin_interfaces.msg import Time
from rclpy.clock import ClockType
from rclpy.qos import qos_profile_sensor_data
from rosgraph_msgs.msg import Clock
from std_msgs.msg import Float64

from timely_llm.ros.guarded import Guarded
from timely_llm.ros.process import executor_of, exit_status, ros, spin

PERIOD_S = 0.02
BEGIN_S = 1.0


class Simulator(Guarded):
    """Its time passes at a factor of the wall's."""

    def __init__(self) -> None:
        super().__init__("simulator")
        assert self.get_clock().clock_type == ClockType.ROS_TIME
        self._publisher = self.create_publisher(Clock, "/clock", qos_profile_sensor_data)
        self.create_subscription(Float64, "/factor", self._on_factor, 10)
        self._factor = 0.0
        self._shows_s = BEGIN_S
        self._at_s = time.monotonic()

    def tick(self) -> bool:
        """Let time pass."""
        now = time.monotonic()
        self._shows_s += self._factor * (now - self._at_s)
        self._at_s = now
        if self._factor:
            seconds = int(self._shows_s)
            stamp = Time(sec=seconds, nanosec=int((self._shows_s - seconds) * 1e9))
            self._publisher.publish(Clock(clock=stamp))
        return True

    def _on_factor(self, message: Float64) -> None:
        self.tick()
        if message.data < 0:
            self._shows_s = BEGIN_S
        self._factor = abs(message.data)


def main() -> int:
    """Run until it is interrupted."""

    def work() -> None:
        with ros(None), executor_of() as executor:
            simulator = Simulator()
            executor.add_node(simulator)
            spin(executor, simulator.tick, poll_s=lambda: PERIOD_S)

    return exit_status("simulator", work)


if __name__ == "__main__":
    sys.exit(main())
