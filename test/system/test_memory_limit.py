"""A server that may have too little memory to start says so."""

from __future__ import annotations

from pathlib import Path

import pytest

from test.system.conftest import Start
from test.system.ros_client import WAIT_S

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
