"""A server that has too little memory, to start or while it serves, leaves no client waiting."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from test.system.conftest import Start
from test.system.ros_client import FIND, WAIT_S
from timely_llm.core.request import ErrorCode
from timely_llm.ros.client.plan import PlanClient, PlanClientError, ServerLost

pytestmark = pytest.mark.faults

LIMITED = """
import os, resource, sys
most = int(sys.argv[1]) * 2**20
resource.setrlimit(resource.RLIMIT_AS, (most, most))
os.execv(sys.executable, [sys.executable, "-m", "timely_llm.ros.plan_server", *sys.argv[2:]])
"""


# Far below the address space of a server: about 1080 MiB, and 2330 MiB with a model in torch.
@pytest.mark.parametrize(
    ("megabytes", "engine"),
    [(300, "simulated"), (600, "transformers"), (1200, "transformers")],
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


@pytest.mark.parametrize("megabytes", [0, 16])
def test_each_request_has_an_end_when_memory_runs_out_while_a_server_serves(
    start: Start, domain: int, megabytes: int
) -> None:
    """It may go on, refuse requests, or die: no client waits longer than it takes to see that."""
    server = start("plan_server", engine="simulated", max_requests_per_agent=64)
    with PlanClient("rover", domain=domain, find_s=WAIT_S) as client:
        assert client.submit(FIND, closed_loop=False).result(WAIT_S).error_code is ErrorCode.NONE
        process = psutil.Process(server.popen.pid)
        most = process.memory_info().vms + megabytes * 2**20
        process.rlimit(psutil.RLIMIT_AS, (most, most))
        tasks = []
        with suppress(PlanClientError):  # it died
            for _ in range(32):
                tasks.append(client.submit(FIND + " " * 5_000, closed_loop=False))
        for task in tasks:
            try:
                result = task.result(WAIT_S)
            except ServerLost as lost:
                assert str(lost)
            else:
                assert bool(result.error_msg) == (result.error_code is not ErrorCode.NONE)
    server.stop()
