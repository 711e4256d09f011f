"""Robots of one process, each a participant of DDS of its own: `many_robots.py FIRST COUNT`.

They have only what the topics of a plan need, so that one machine carries a hundred of them. One
after the other lists the requests until it is answered, and then asks for a plan. `holds NAME` is
printed when the plan waits for a value. SIGUSR1 lets all report it; `ended NAME CODE` is printed
for each result.
"""

from __future__ import annotations

import signal
import sys
import threading
import time
from typing import Any

import rclpy
from rclpy.context import Context
from rclpy.executors import SingleThreadedExecutor
from rclpy.signals import SignalHandlerOptions

from timely_llm import msg, srv
from timely_llm.core.request import ReportState
from timely_llm.core.time_utility import NORMAL
from timely_llm.ros import qos
from timely_llm.ros.conversions import TIME_UTILITY

AGAIN_S = ALIVE_S = 1.0
PAUSE_S = 0.02
GO_ON = threading.Event()


class Robot:
    """One robot: its participant, and what it has of its plan."""

    def __init__(self, name: str) -> None:
        self.ends = 0
        self._name = name
        self._answered = self._asked = self._reported = False
        self._asked_s = self._alive_s = 0.0
        self._waiting: msg.Segment | None = None
        context = Context()
        rclpy.init(args=[], context=context, signal_handler_options=SignalHandlerOptions.NO)
        node = rclpy.create_node(
            name.replace("-", "_"), context=context, enable_rosout=False,
            start_parameter_services=False,
        )  # fmt: skip
        self._executor = SingleThreadedExecutor(context=context)
        self._executor.add_node(node)
        made, at = qos.reliable(), "plan_server"
        self._requests = node.create_publisher(msg.PlanRequest, f"{at}/plan_requests", made)
        self._reports = node.create_publisher(msg.ExecutionReport, f"{at}/execution_reports", made)
        node.create_subscription(msg.Segment, f"{at}/segments", self._on_segment, made)
        node.create_subscription(msg.PlanResult, f"{at}/results", self._on_result, made)
        # Made last: a server that answers its last reader knows the others.
        self._list: Any = node.create_client(srv.ListRequests, f"{at}/list_requests")

    @property
    def holds(self) -> bool:
        """Whether its plan waits for a value."""
        return self._waiting is not None

    def spin(self) -> None:
        """Take what has come, and do what is due."""
        self._executor.spin_once(timeout_sec=0)
        now = time.monotonic()
        if self.ends:
            return
        if not self._answered:
            if self._list.service_is_ready() and now >= self._asked_s + AGAIN_S:
                self._asked_s = now
                self._list.call_async(srv.ListRequests.Request()).add_done_callback(self._on_list)
        elif not self._asked:
            self._asked = bool(
                self._requests.get_subscription_count() and self._reports.get_subscription_count()
            )
            if self._asked:
                self._requests.publish(
                    msg.PlanRequest(
                        request_id=self._name, agent=self._name, skill_set="patient", task="Look.",
                        closed_loop=True, time_utility=TIME_UTILITY.message(NORMAL),
                    )
                )  # fmt: skip
        elif self._waiting is not None and GO_ON.is_set() and not self._reported:
            self._reported = True
            self._report(ReportState.FINISHED, index=self._waiting.index, value="a cat")
        elif now >= self._alive_s + ALIVE_S:
            self._alive_s = now
            self._report(ReportState.ALIVE)

    def _report(self, state: ReportState, **fields: Any) -> None:
        self._reports.publish(
            msg.ExecutionReport(request_id=self._name, agent=self._name, state=int(state), **fields)
        )

    def _on_list(self, _: Any) -> None:
        self._answered = True

    def _on_segment(self, segment: msg.Segment) -> None:
        if segment.request_id != self._name:
            return
        if any(call.blocking for call in segment.calls):
            self._waiting = segment
            print(f"holds {self._name}", flush=True)
        else:
            self._report(ReportState.FINISHED, index=segment.index)

    def _on_result(self, result: msg.PlanResult) -> None:
        if result.request_id == self._name:
            self.ends += 1
            print(f"ended {self._name} {result.error_code}", flush=True)


def main() -> None:
    first, count = map(int, sys.argv[1:])
    signal.signal(signal.SIGUSR1, lambda *_: GO_ON.set())
    robots: list[Robot] = []
    while len(robots) < count or not all(robot.ends for robot in robots):
        if len(robots) < count and (not robots or robots[-1].holds or robots[-1].ends):
            robots.append(Robot(f"robot-{first + len(robots)}"))
        for robot in robots:
            robot.spin()
        time.sleep(PAUSE_S)


if __name__ == "__main__":
    main()
