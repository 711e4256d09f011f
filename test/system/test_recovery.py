"""A server that is killed and started again with its recovery journal: real processes."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from test.system.conftest import Start
from test.system.ros_client import PATIENT
from timely_llm.core.request import ErrorCode
from timely_llm.ros.client.plan import PlanClient, ServerLost

pytestmark = pytest.mark.faults
WAIT_S = 60.0


def test_a_robot_goes_on_with_its_plan_at_the_server_that_was_killed(
    start: Start, domain: int, tmp_path: Path
) -> None:
    journal = tmp_path / "journal"
    parameters = PATIENT | {"client_timeout_s": 60.0, "recovery_journal": str(journal)}
    server = start("plan_server", **parameters)
    with PlanClient("rover", "patient", domain=domain, find_s=WAIT_S) as client:
        task = client.submit("Look.", request_id="tour")
        segments = task.segments(WAIT_S)
        text = next(segments).text
        server.popen.send_signal(signal.SIGKILL)
        with pytest.raises(ServerLost, match="died or cannot be reached"):
            list(segments)
        server = start("plan_server", **parameters)
        again = client.resume("tour")
        made = []
        for segment in again.segments(WAIT_S):
            made.append((segment.epoch, segment.index))
            text = segment.text if segment.index == 0 else text + segment.text
            again.finished(segment, value="a cat")
        assert again.result(WAIT_S).error_code is ErrorCode.NONE
        assert text == "mf(50);tc(90);tp();mf(50);->True;"
        assert made == [(0, index) for index in range(len(made))]
    server.stop()
    assert server.popen.returncode == 0
    assert "recovery journal: 1 request had not ended" in server.output
    assert b'"kind":"ended","id":"tour"' in journal.read_bytes()
