"""Participants that ask and report, a ROS context each: `crowd.py NAME COUNT SECONDS`.

The last line is JSON: how many plans were asked for, accepted, refused by code, and ended by code.
"""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from typing import Any

import rclpy
from rclpy.context import Context
from rclpy.executors import SingleThreadedExecutor

from timely_llm import msg, srv
from timely_llm.core.request import ErrorCode, ReportState
from timely_llm.core.time_utility import NORMAL
from timely_llm.ros import qos
from timely_llm.ros.conversions import TIME_UTILITY

FIND_S, END_S = 60.0, 60.0


class Participant:
    """Asks for one plan after the other, and reports each as executed."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._context = Context()
        rclpy.init(context=self._context)
        self.node = rclpy.create_node(name, context=self._context)
        self._executor = SingleThreadedExecutor(context=self._context)
        self._executor.add_node(self.node)
        self.service: Any = self.node.create_client(
            srv.SubmitPlan, "plan_server/submit_plan", qos_profile=qos.reliable()
        )
        self._reports = self.node.create_publisher(
            msg.ExecutionReport, "plan_server/execution_reports", qos.reliable()
        )
        self.node.create_subscription(
            msg.PlanResult, "plan_server/results", self._on_result, qos.reliable()
        )
        self._asked: Any = None
        self.open: set[str] = set()
        self._early: dict[str, ErrorCode] = {}
        self.counts: Counter[str] = Counter()

    def spin(self, asking: bool) -> None:
        """Do what is due; ask again if nothing is open."""
        self._executor.spin_once(timeout_sec=0.0)
        if self._asked is not None and self._asked.done():
            self._on_answer(self._asked.result())
            self._asked = None
        if asking and self._asked is None and not self.open:
            self.counts["asked"] += 1
            request = msg.PlanRequest(
                request_id=f"{self.name}-{self.counts['asked']}", agent=self.name,
                skill_set="drone", task="Look.", time_utility=TIME_UTILITY.message(NORMAL),
            )  # fmt: skip
            self._asked = self.service.call_async(srv.SubmitPlan.Request(request=request))

    @property
    def waits(self) -> bool:
        """Whether an answer or a result has not come."""
        return bool(self._asked is not None or self.open)

    def _on_answer(self, answer: Any) -> None:
        if answer.error_code:
            self.counts[f"refused {ErrorCode(answer.error_code).name}"] += 1
            return
        self.counts["accepted"] += 1
        self._reports.publish(
            msg.ExecutionReport(
                request_id=answer.request_id, agent=self.name, state=int(ReportState.ALIVE)
            )
        )
        self.open.add(answer.request_id)
        if answer.request_id in self._early:
            self._end(answer.request_id, self._early.pop(answer.request_id))

    def _on_result(self, result: msg.PlanResult) -> None:
        if result.agent != self.name:
            return
        if result.request_id in self.open:
            self._end(result.request_id, ErrorCode(result.error_code))
        else:
            self._early[result.request_id] = ErrorCode(result.error_code)

    def _end(self, name: str, code: ErrorCode) -> None:
        self.open.discard(name)
        self.counts[f"ended {code.name}"] += 1


def main(name: str, count: int, seconds: float) -> None:
    """Run the participants; print their counts."""
    crowd = [Participant(f"{name}{n}") for n in range(count)]
    for one in crowd:
        assert one.service.wait_for_service(FIND_S), f"{one.name} finds no server"
    print("all there", flush=True)
    end_s = time.monotonic() + seconds
    while time.monotonic() < end_s:
        for one in crowd:
            one.spin(asking=True)
    end_s = time.monotonic() + END_S
    while any(one.waits for one in crowd) and time.monotonic() < end_s:
        for one in crowd:
            one.spin(asking=False)
    total = sum((one.counts for one in crowd), Counter())
    total["never answered"] = sum(one.waits for one in crowd)
    total["served"] = sum(one.counts["ended NONE"] > 0 for one in crowd)
    print(json.dumps(total), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]))
