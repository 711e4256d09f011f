"""A health check asks the server itself."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from test.system.conftest import Start, ros_environment
from test.system.ros_client import Client, serving


def state(domain: int, *words: str) -> tuple[int, str, str]:
    """Return exit status, output and errors of a health check."""
    done = subprocess.run(
        [sys.executable, "-m", "timely_llm.ros.server_state", *words],
        env=os.environ | ros_environment(domain), capture_output=True, text=True, timeout=60,
        check=False,
    )  # fmt: skip
    return done.returncode, done.stdout, done.stderr


def test_an_active_server_is_healthy_and_one_that_waits_is_not(start: Start, domain: int) -> None:
    with serving(start, Client, domain, engine="simulated"):
        assert state(domain, "--timeout", "30") == (0, "active\n", "")
    waiting = start("plan_server", engine="simulated", autostart=False)
    assert state(domain, "--timeout", "30") == (
        1,
        "unconfigured\n",
        "server_state: plan_server is unconfigured, not active\n",
    )
    waiting.stop()


@pytest.mark.parametrize("server", ["plan_server", "no name"])
def test_a_server_that_is_not_there_is_not_healthy(domain: int, server: str) -> None:
    status, output, errors = state(domain, "--timeout", "0.5", "--server", server)
    assert (status, output) == (1, "")
    assert errors.startswith("server_state: ")
    assert len(errors.splitlines()) == 1
