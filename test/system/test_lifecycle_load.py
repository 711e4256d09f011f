"""A server is led through its life again and again while robots ask: each request has one end."""

from __future__ import annotations

import time
from collections import Counter
from typing import Any

import pytest
from lifecycle_msgs.msg import Transition
from lifecycle_msgs.srv import ChangeState
from rclpy.action import ActionClient

from test.system.conftest import EXECUTORS, ROOT, Start
from test.system.ros_client import PATIENT, Client, serving
from timely_llm.action import Plan
from timely_llm.core.request import ErrorCode
from timely_llm.ros import qos

pytestmark = pytest.mark.faults

SKILL_SETS = [ROOT / "test/system/patient.yaml", ROOT / "config/skill_sets/drone.yaml"]
WITHDRAWN = ("deactivate", "cleanup", "configure", "activate")
PAUSED = ("deactivate", "activate")
ACTIVE_S, INACTIVE_S = 1.0, 0.2
"""Time of asking after each change of the server's life, seconds."""
ALLOWED = {ErrorCode.NONE, ErrorCode.INACTIVE, ErrorCode.SHUTTING_DOWN}


class Asking(Client):
    """Sends goals all the time, and keeps what becomes of each."""

    def __init__(self, domain: int) -> None:
        super().__init__(domain)
        # With the default profiles a client loses all but the last ten of a burst of results.
        self.deep: Any = ActionClient(self.node, Plan, "plan_server/plan", **qos.of_action("sub"))
        self.sent: list[Any] = []
        self.results: list[Any] = []

    def ask(self, **fields: Any) -> None:
        """Send one goal, of a robot of its own."""
        goal = self.goal(agent=f"robot {len(self.sent)}", **fields)
        sent = self.deep.send_goal_async(goal)
        sent.add_done_callback(lambda done: self.results.append(done.result().get_result_async()))
        self.sent.append(sent)

    def ask_for(self, seconds: float) -> None:
        """Ask during some seconds, each fourth time for a plan that waits for its robot."""
        end_s = time.monotonic() + seconds
        while time.monotonic() < end_s:
            self.ask(skill_set="drone" if len(self.sent) % 4 else "patient")
            next_s = time.monotonic() + 0.02
            self.until(lambda next_s=next_s: time.monotonic() > next_s)  # type: ignore[misc]

    @property
    def ended(self) -> bool:
        """Whether each goal has its result."""
        return len(self.results) == len(self.sent) and all(one.done() for one in self.results)

    @property
    def codes(self) -> Counter[ErrorCode]:
        """How the goals ended."""
        return Counter(ErrorCode(one.result().result.error_code) for one in self.results)

    def change(self, transition: str) -> None:
        """Lead the server one step on."""
        request = Transition(id=getattr(Transition, f"TRANSITION_{transition.upper()}"))
        assert self.call(ChangeState, "change_state", transition=request).success, transition


@pytest.mark.parametrize(
    "loops", [2, pytest.param(50, marks=[pytest.mark.long, pytest.mark.timeout(900)])]
)
@pytest.mark.parametrize("executor", EXECUTORS)
def test_a_server_in_loops_of_its_life_loses_no_goal_and_no_memory(
    start: Start, domain: int, executor: str, loops: int
) -> None:
    made = PATIENT | {
        "executor": executor, "drain_timeout_s": 0.5,
        "skill_sets": f"[{', '.join(map(str, SKILL_SETS))}]",
    }  # fmt: skip
    with serving(start, Asking, domain, **made) as client:
        assert client.deep.wait_for_server(60)
        client.until(lambda: bool(client.stats))
        free = client.stats[-1].free_kv_tokens
        for _ in range(loops):
            for way in (PAUSED, WITHDRAWN):
                for transition in way:
                    client.change(transition)
                    client.ask_for(ACTIVE_S if transition == "activate" else INACTIVE_S)
        client.change("deactivate")
        client.until(lambda: client.ended)
        codes = client.codes
        assert codes.total() == len(client.sent)
        assert set(codes) <= ALLOWED, codes
        assert codes[ErrorCode.NONE] > 0, "some were answered between the changes"
        assert codes[ErrorCode.INACTIVE] > 0, "some were refused"
        assert client.listed() == {}
        client.stats.clear()
        client.until(lambda: bool(client.stats) and client.stats[-1].free_kv_tokens == free)
        client.deep.destroy()
