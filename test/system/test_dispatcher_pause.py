"""The dispatcher of a robot is killed in the middle of its plan: real processes."""

from __future__ import annotations

import time

import pytest

from test.system.conftest import Start
from test.system.ros_client import PATIENT
from timely_llm.ros.client.plan import PlanClient

pytestmark = pytest.mark.faults
WAIT_S = 60.0


@pytest.mark.parametrize("away_s", [0.0, 4.0])
def test_a_robot_sees_only_a_pause_when_its_dispatcher_is_killed(
    start: Start, domain: int, away_s: float
) -> None:
    namespace = f"site_{away_s:.0f}"
    place = ("-r", f"__ns:=/{namespace}")
    server = start("plan_server", "-r", f"__ns:=/{namespace}/s1", **PATIENT)
    dispatcher = start("dispatch.node", *place, name_check_s=0.0)
    calls: list[str] = []

    def turn(*words: object) -> str:
        nonlocal dispatcher
        calls.append("tc")
        dispatcher.popen.kill()
        dispatcher.wait(WAIT_S)
        time.sleep(away_s)  # shorter, and longer, than a client needs to miss its dispatcher
        dispatcher = start("dispatch.node", *place, name_check_s=0.0)
        return "a cat"

    with PlanClient("rover", "patient", namespace=namespace, domain=domain, find_s=WAIT_S) as robot:
        done = robot.execute(
            "Look.", {"tc": turn}, otherwise=lambda *_: calls.append("other"), timeout_s=WAIT_S
        )
    assert done.plan == "mf(50);tc(90);tp();mf(50);->True;"
    assert calls == ["other", "tc", "other", "other"]
    for process in (dispatcher, server):
        process.stop()
        assert process.popen.returncode == 0
