"""A server that may have little memory says so, or refuses; its clients are informed."""

from __future__ import annotations

import resource
import time
from pathlib import Path
from typing import Any

import pytest

from test.system.conftest import Start
from test.system.ros_client import PATIENT, WAIT_S, Client
from timely_llm import msg, srv
from timely_llm.core.request import ErrorCode
from timely_llm.ros.client.plan import PlanClient, PlanClientError

pytestmark = pytest.mark.faults

LIMITED = """
import os, resource, sys
most = int(sys.argv[1]) * 2**20
resource.setrlimit(resource.RLIMIT_AS, (most, most))
os.execv(sys.executable, [sys.executable, "-m", "timely_llm.ros.plan_server", *sys.argv[2:]])
"""
LARGE = "x" * 5_000_000


@pytest.mark.parametrize(
    ("megabytes", "engine"),
    [(600, "simulated"), (300, "simulated"), (600, "transformers"), (1500, "transformers")],
)
def test_a_server_without_memory_to_start_ends_with_a_sentence(
    start: Start, tmp_path: Path, megabytes: int, engine: str
) -> None:
    script = tmp_path / "limited.py"
    script.write_text(LIMITED)
    server = start(str(script), str(megabytes), "--ros-args", "-p", f"engine:={engine}")
    assert server.wait(WAIT_S) != 0
    assert "Traceback" not in server.output
    [*_, last] = server.output.strip().splitlines()
    assert "memory" in last.lower() or "failed to map segment" in last


@pytest.mark.parametrize("more_megabytes", [16, 0, 64])
def test_a_server_that_runs_out_of_memory_answers_or_ends_and_its_clients_are_informed(
    start: Start, domain: int, more_megabytes: int
) -> None:
    server = start("plan_server", **PATIENT)
    client = Client(domain)
    client.wait_for_action()
    with PlanClient("robot", "patient", domain=domain, find_s=WAIT_S) as robot:
        task = robot.submit("Look.", request_id="before")
        next(task.segments(WAIT_S))
        used = int(Path(f"/proc/{server.popen.pid}/statm").read_text().split()[0]) * 4096
        most = used + more_megabytes * 2**20
        resource.prlimit(server.popen.pid, resource.RLIMIT_AS, (most, most))
        submit: Any = client.node.create_client(srv.SubmitPlan, "plan_server/submit_plan")
        assert submit.wait_for_service(WAIT_S)
        for n in range(30):
            if server.popen.poll() is not None:
                break
            request = msg.PlanRequest(
                request_id=f"{n}", agent=f"{n}", skill_set="patient",
                task=LARGE if n % 2 else "Look.",
            )  # fmt: skip
            # A message for which there is no memory is lost: its client waits as it likes.
            answer = submit.call_async(srv.SubmitPlan.Request(request=request))
            end_s = time.monotonic() + 0.3
            client.until(lambda a=answer, e=end_s: a.done() or time.monotonic() > e)  # type: ignore[misc]
        try:
            task.returned()
            informed = task.result(WAIT_S).error_code
        except PlanClientError as error:
            informed = error.code
    client.close()
    ended = server.popen.poll()
    if ended is None:
        assert informed is ErrorCode.NONE, "it serves on"
    else:
        assert ended != 0
        assert "no memory is left" in server.output or "bad_alloc" in server.output
    server.stop()
    assert "Traceback" not in server.output
