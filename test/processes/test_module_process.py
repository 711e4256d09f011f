"""A module's process gets its secret, is in a group of its own, and is killed with the others."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import pytest

from timely_llm.processes.module_process import ModuleProcess
from timely_llm.processes.signals import manner

WAIT_S = 30.0
READER = """
import pathlib, sys
pathlib.Path(sys.argv[2]).write_text(f"{sys.argv[1]} {sys.stdin.read()}")
sys.exit(3)
"""
PARENT = """
import pathlib, subprocess, sys, time
started = subprocess.Popen(["sleep", "600"])
pathlib.Path(sys.argv[2]).write_text(f"{started.pid}\\n")
time.sleep(600)
"""


@pytest.fixture(autouse=True)
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "reader.py").write_text(READER)
    (tmp_path / "parent.py").write_text(PARENT)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])


@pytest.mark.parametrize("secret", [b"", b"word"])
def test_a_module_gets_the_parents_id_its_arguments_and_the_secret(
    tmp_path: Path, secret: bytes
) -> None:
    process = ModuleProcess("reader", tmp_path / "read", secret=secret)
    assert process.wait(WAIT_S) == process.status == 3
    assert (tmp_path / "read").read_text() == f"{os.getpid()} {secret.decode()}"


def test_a_killed_process_ends_with_those_that_it_has_started(tmp_path: Path) -> None:
    process = ModuleProcess("parent", tmp_path / "pid")
    end_s = time.monotonic() + WAIT_S
    while not ((tmp_path / "pid").exists() and (tmp_path / "pid").read_text().endswith("\n")):
        assert time.monotonic() < end_s
    assert process.status is None and process.wait(0.0) is None
    started = int((tmp_path / "pid").read_text())
    assert os.getpgid(started) == process.pid
    process.kill()
    assert process.wait(WAIT_S) == -signal.SIGKILL
    while Path(f"/proc/{started}").exists() and time.monotonic() < end_s:
        if Path(f"/proc/{started}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z":
            break
    assert time.monotonic() < end_s


def test_the_end_of_a_process_has_words() -> None:
    assert manner(0) == "with status 0"
    assert manner(-signal.SIGTERM) == "by SIGTERM"
    assert manner(-99) == "by signal 99"
