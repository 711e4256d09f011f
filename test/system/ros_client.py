"""A client node for system tests, every wait bounded."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import rclpy
from rclpy.action import ActionClient
from rclpy.context import Context
from rclpy.executors import SingleThreadedExecutor
from rclpy.task import Future

from test.system.conftest import Start
from timely_llm import msg, srv
from timely_llm.action import Plan
from timely_llm.core.time_utility import NORMAL, TimeUtility
from timely_llm.ros.conversions import TIME_UTILITY

AnyClient = TypeVar("AnyClient", bound="Client")
WAIT_S = 60.0
PATIENT = {
    "engine": "simulated",
    "skill_sets": f"[{Path(__file__).with_name('patient.yaml')}]",
    "stats_period_s": 0.1,
}
"""A server with plans that wait, after `mf(50);tc(90);`, until a value is reported."""
FIND = "Scene: []\nTask: [A] Check for a cat or a cup."
LONG = "Scene: []\nTask: [A] Go up 50 cm, wait 3 seconds, move left 100 cm and then take a picture."


STATES = {
    msg.RequestStatus.QUEUED: "queued",
    msg.RequestStatus.RUNNING: "running",
    msg.RequestStatus.SUSPENDED: "suspended",
    msg.RequestStatus.BLOCKED: "blocked",
    msg.RequestStatus.EXECUTING: "executing",
}


class Client:
    """Asks the plan server of one domain."""

    def __init__(self, domain: int) -> None:
        self._context = Context()
        rclpy.init(context=self._context, domain_id=domain)
        self.node = rclpy.create_node("system_test", context=self._context)
        self._executor = SingleThreadedExecutor(context=self._context)
        self._executor.add_node(self.node)
        self.action: ActionClient[Any, Any, Any] = ActionClient(self.node, Plan, "plan_server/plan")
        self.segments: list[msg.Segment] = []
        self.feedback: list[msg.Segment] = []
        self.stats: list[msg.ServerStats] = []
        self.node.create_subscription(
            msg.Segment, "plan_server/segments", self.segments.append, 256
        )
        self.node.create_subscription(msg.ServerStats, "plan_server/stats", self.stats.append, 10)
        self.requests = self.node.create_publisher(msg.PlanRequest, "plan_server/plan_requests", 10)
        self.reports = self.node.create_publisher(
            msg.ExecutionReport, "plan_server/execution_reports", 10
        )

    def close(self) -> None:
        self._executor.shutdown(timeout_sec=1)
        self.node.destroy_node()
        rclpy.shutdown(context=self._context)

    def until(self, condition: Callable[[], bool], wait_s: float = WAIT_S) -> None:
        """Spin until a condition holds; fail if it does not in time."""
        end_s = time.monotonic() + wait_s
        while not condition():
            assert time.monotonic() < end_s, f"waited {wait_s} s in vain"
            self._executor.spin_once(timeout_sec=0.05)

    def result(self, future: Future[Any]) -> Any:
        self.until(future.done)
        return future.result()

    def wait_for_server(self) -> None:
        """Wait until the server is there and its segments reach this node."""
        assert self.action.wait_for_server(60)
        self.until(lambda: bool(self.stats))
        asked = []
        while not self.segments:
            answer = self.call(srv.SubmitPlan, "submit_plan", request=self.request(task=FIND))
            asked.append(answer.request_id)
            end_s = time.monotonic() + 2
            self._until_segment(end_s)
        for request_id in asked:  # no test uses them any more
            self.call(srv.CancelRequest, "cancel_request", request_id=request_id)

    def wait_for_action(self) -> None:
        """Wait until the server is there; for servers that make no plans for this."""
        assert self.action.wait_for_server(60)
        client: Any = self.node.create_client(srv.ListRequests, "plan_server/list_requests")
        assert client.wait_for_service(WAIT_S)
        answers: list[Future[Any]] = []
        asked_s = 0.0

        def answered() -> bool:
            # A question that comes before discovery is complete may get lost.
            nonlocal asked_s
            if time.monotonic() > asked_s + 1.0:
                asked_s = time.monotonic()
                answers.append(client.call_async(srv.ListRequests.Request()))
            return any(answer.done() for answer in answers)

        self.until(answered)
        self.node.destroy_client(client)

    def listed(self) -> dict[str, str]:
        """Return the states of the requests being served."""
        answer = self.call(srv.ListRequests, "list_requests")
        return {status.request_id: STATES[status.state] for status in answer.requests}

    def until_listed(self, states: dict[str, str]) -> None:
        """Wait until exactly these requests are being served, in these states."""
        end_s = time.monotonic() + WAIT_S
        while (found := self.listed()) != states:
            assert time.monotonic() < end_s, found

    def _until_segment(self, end_s: float) -> None:
        self.until(lambda: bool(self.segments) or time.monotonic() > end_s)

    def call(self, kind: Any, name: str, /, **fields: Any) -> Any:
        client: Any = self.node.create_client(kind, f"plan_server/{name}")
        assert client.wait_for_service(WAIT_S)
        response = self.result(client.call_async(kind.Request(**fields)))
        self.node.destroy_client(client)
        return response

    def request(self, request_id: str = "", task: str = FIND, **fields: Any) -> msg.PlanRequest:
        return msg.PlanRequest(
            request_id=request_id,
            agent="tester",
            skill_set="drone",
            task=task,
            time_utility=TIME_UTILITY.message(NORMAL),
            **fields,
        )

    def goal(self, request_id: str = "", **fields: Any) -> Plan.Goal:
        values = {
            "request_id": request_id,
            "agent": "tester",
            "skill_set": "drone",
            "task": FIND,
            "time_utility": TIME_UTILITY.message(NORMAL),
        }
        return Plan.Goal(**(values | fields))

    def send(self, goal: Plan.Goal) -> Any:
        """Send a goal; return its handle. Its segments go to `feedback`."""
        self.feedback.clear()
        sent = self.action.send_goal_async(
            goal, lambda message: self.feedback.append(message.feedback.segment)
        )
        handle = self.result(sent)
        assert handle.accepted
        return handle

    def plan(self, goal: Plan.Goal) -> Any:
        """Send a goal and wait; return (status, result)."""
        answer = self.result(self.send(goal).get_result_async())
        return answer.status, answer.result

    def of(self, request_id: str) -> list[msg.Segment]:
        return [s for s in self.segments if s.request_id == request_id]


def utility(beta: float, alpha: float = -2.0, ert: float = 1.0) -> msg.TimeUtility:
    return msg.TimeUtility(beta=beta, alpha=alpha, ert=ert)


def handles(pid: int, signum: signal.Signals) -> bool:
    """Return whether a process has a handler of its own for a signal."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    caught = next(line.split()[1] for line in lines if line.startswith("SigCgt:"))
    return bool(int(caught, 16) >> (signum - 1) & 1)


__all__ = ["FIND", "LONG", "NORMAL", "PATIENT", "Client", "TimeUtility", "handles", "utility"]


@contextmanager
def serving(
    start: Start, client: type[AnyClient], domain: int, **parameters: Any
) -> Iterator[AnyClient]:
    """Start a server and a client that it answers; in the end the server ends without a fault."""
    server = start("plan_server", **parameters)
    made = client(domain)
    made.wait_for_action()
    yield made
    made.close()
    server.stop()
    assert server.popen.returncode == 0
    assert "Traceback" not in server.output
