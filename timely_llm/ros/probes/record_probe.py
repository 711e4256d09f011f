"""A server that only publishes segments at a rate: one side of `timely-llm benchmark record`."""

from __future__ import annotations

import signal
import sys
import time

from rclpy.duration import Duration

from timely_llm import msg
from timely_llm.benchmarks.record import COUNTED
from timely_llm.core.errors import ConfigurationError
from timely_llm.ros import qos
from timely_llm.ros.guarded import Guarded
from timely_llm.ros.parameters import NodeParameter, declare
from timely_llm.ros.process import exit_status, ros

KNOCK = "knock"
"""Request id of the segments that are sent until the recorder is found."""
LIMIT_S = 30.0
PARAMETERS = (
    NodeParameter("rate", 2000.0, "segments a second", 1.0, 1e6),
    NodeParameter("messages", 20_000, "segments", 1, 100_000_000),
    NodeParameter("server", "plan_server", "name of the server that it replaces"),
)


class RecordProbe(Guarded):
    """Publishes segments like a server, but faster."""

    def __init__(self) -> None:
        super().__init__("record_probe")
        self._values = values = declare(self, PARAMETERS)
        self._publisher = qos.publisher(self, msg.Segment, f"{values['server']}/segments")

    def knock(self) -> None:
        """Publish a segment from time to time, until SIGUSR1 says that one was recorded.

        Raises:
            ConfigurationError: no segment was recorded in time.
        """
        end_s = time.monotonic() + LIMIT_S
        while not signal.sigtimedwait([signal.SIGUSR1], 0.1):
            if time.monotonic() > end_s:
                raise ConfigurationError(f"no segment was recorded within {LIMIT_S:g} s")
            self._publisher.publish(_segment(KNOCK, 0))

    def publish(self) -> None:
        """Publish all segments, each at its time, and wait until all are acknowledged."""
        began_s, rate = time.monotonic(), self._values["rate"]
        for index in range(self._values["messages"]):
            time.sleep(max(began_s + index / rate - time.monotonic(), 0.0))
            self._publisher.publish(_segment(COUNTED, index))
        self._publisher.wait_for_all_acked(Duration(seconds=LIMIT_S))


def _segment(request_id: str, index: int) -> msg.Segment:
    """Return a segment like that of the shipped drone."""
    calls = [
        msg.SkillCall(name=name, arguments=[msg.SkillArgument(name="x", value=value)], predicted=s)
        for name, value, s in (("tc", "90", 1.5), ("mf", "50", 2.1744))
    ]
    return msg.Segment(
        request_id=request_id, agent="probe", index=index, text="tc(90);mf(50);", calls=calls,
        predicted=3.6744,
    )  # fmt: skip


def main(args: list[str] | None = None) -> int:
    """Publish; return the exit status."""
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])

    def work() -> None:
        with ros(args):
            probe = RecordProbe()
            probe.knock()
            probe.publish()

    return exit_status("record_probe", work)


if __name__ == "__main__":
    sys.exit(main())
