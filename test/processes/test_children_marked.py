"""Processes that are known by a variable of their environment."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
import time

from timely_llm.processes.children import left_running

SLEEPS = "import time; time.sleep(60)"
STARTS_ONE = (
    f"import subprocess, sys; print(subprocess.Popen([sys.executable, '-c', {SLEEPS!r}]).pid)"
)


def test_a_child_of_a_process_that_ended_is_found_until_it_ends() -> None:
    variable, value = "TIMELY_LLM_MARK", secrets.token_hex(8)
    subprocess.run(
        [sys.executable, "-c", STARTS_ONE], check=True, stdout=subprocess.DEVNULL,
        env=os.environ | {variable: value},
    )  # fmt: skip
    end_s = time.monotonic() + 10.0
    while not (left := left_running(variable, value, within_s=0.0)):
        assert time.monotonic() < end_s  # it has no environment while it begins its program
    (child,) = left
    assert left_running(variable, "another value") == []
    child.kill()
    assert left_running(variable, value) == []
