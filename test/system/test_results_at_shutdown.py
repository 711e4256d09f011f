"""Goals that are on their way while a server ends get their results."""

from __future__ import annotations

import time
from typing import Any

import pytest
from rclpy.action import ActionClient

from test.system.conftest import Start
from test.system.ros_client import WAIT_S, Client
from timely_llm.action import Plan
from timely_llm.core.request import ErrorCode
from timely_llm.ros import qos


@pytest.mark.faults
@pytest.mark.parametrize("after_s", [0.1, 0.3])
def test_goals_under_load_get_their_results_when_the_server_ends(
    start: Start, domain: int, after_s: float
) -> None:
    ending = start("plan_server", engine="simulated", shutdown_drain_s=0.0)
    client = Client(domain)
    # With the default profiles a client loses all but the last ten of a burst of results.
    action: Any = ActionClient(client.node, Plan, "plan_server/plan", **qos.of_action("sub"))
    assert action.wait_for_server(WAIT_S)
    client.wait_for_server()
    sent = [action.send_goal_async(client.goal(agent=f"a{n}")) for n in range(30)]
    end_s = time.monotonic() + after_s
    client.until(lambda: time.monotonic() > end_s)
    ending.popen.terminate()
    asked: dict[int, Any] = {}

    def ask() -> bool:
        """Ask for the result of each goal that was accepted; return whether all have come."""
        for n, goal in enumerate(sent):
            if goal.done() and n not in asked:
                asked[n] = goal.result().get_result_async()
        return len(asked) == len(sent) and all(result.done() for result in asked.values())

    client.until(ask)
    assert ending.wait(WAIT_S) == 0
    codes = {result.result().result.error_code for result in asked.values()}
    assert codes <= {ErrorCode.NONE, ErrorCode.SHUTTING_DOWN, ErrorCode.INACTIVE}, codes
    assert "Traceback" not in ending.output
    action.destroy()
    client.close()
