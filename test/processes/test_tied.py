"""A child that is tied to its parent ends with it, and so does what the child has started."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from timely_llm.processes.tied import module_environment, tied_command

LIMIT_S = 30.0
PARENT = """
import subprocess, sys, time
from timely_llm.processes.tied import tied_command
subprocess.Popen(tied_command(sys.argv[1:]), start_new_session=True)
time.sleep(600)
"""
CHILD = """
import os, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
started = subprocess.Popen(["sleep", "600"])
print(os.getpid(), started.pid, flush=True)
time.sleep(float(sys.argv[1]))
"""
LINKED = """
import os, sys, time
from timely_llm.processes.tied import tie_to_parent
tie_to_parent(os.getppid(), link=int(sys.argv[1]))
print("tied", flush=True)
time.sleep(600)
"""
needs_linux = pytest.mark.skipif(sys.platform != "linux", reason="the kernel of Linux does it")


def runs(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return False
    return state != "Z"


def wait_until_gone(*pids: int) -> None:
    end_s = time.monotonic() + LIMIT_S
    while any(map(runs, pids)):
        assert time.monotonic() < end_s, f"still there: {list(filter(runs, pids))}"
        time.sleep(0.02)


class Family:
    """A parent, its tied child, and what the child has started."""

    def __init__(self, child_s: float) -> None:
        command = [sys.executable, "-c", CHILD, str(child_s)]
        self.parent = subprocess.Popen(
            [sys.executable, "-c", PARENT, *command],
            stdout=subprocess.PIPE, env=module_environment(), text=True,
        )  # fmt: skip
        assert self.parent.stdout is not None
        self.child, self.grandchild = map(int, self.parent.stdout.readline().split())


@pytest.fixture
def family(request: pytest.FixtureRequest) -> Iterator[Family]:
    made = Family(getattr(request, "param", 600.0))
    yield made
    made.parent.kill()
    made.parent.communicate()


@needs_linux
@pytest.mark.parametrize("stopped", [False, True])
def test_a_killed_parent_takes_a_child_and_all_it_has_started_along(
    family: Family, stopped: bool
) -> None:
    if stopped:
        os.kill(family.child, signal.SIGSTOP)
    family.parent.kill()
    wait_until_gone(family.child, family.grandchild)


@needs_linux
@pytest.mark.parametrize("family", [0.0], indirect=True)
def test_what_a_child_has_started_does_not_outlive_it(family: Family) -> None:
    wait_until_gone(family.child, family.grandchild)
    assert family.parent.poll() is None


@needs_linux
def test_a_tied_program_has_only_the_children_that_it_has_started(family: Family) -> None:
    threads = Path(f"/proc/{family.child}/task").glob("*/children")
    found = [int(pid) for path in threads for pid in path.read_text().split()]
    assert found == [family.grandchild]


def test_a_child_of_a_parent_that_is_gone_does_not_begin() -> None:
    command = [word if word != str(os.getpid()) else "1" for word in tied_command(["echo", "hi"])]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert done.returncode == 1
    assert (done.stdout, done.stderr) == ("", "the process that started this one is gone\n")


@pytest.mark.parametrize("kind", ["socket", "pipe"])
def test_a_child_ends_when_its_link_to_a_living_parent_is_closed(kind: str) -> None:
    if kind == "socket":
        ours, theirs = (one.detach() for one in socket.socketpair())
    else:
        theirs, ours = os.pipe()
    child = subprocess.Popen(
        [sys.executable, "-c", LINKED, str(theirs)],
        pass_fds=(theirs,), stdout=subprocess.PIPE, env=module_environment(), text=True,
    )  # fmt: skip
    try:
        os.close(theirs)
        assert child.stdout is not None
        assert child.stdout.readline() == "tied\n"
        if kind == "socket":
            os.write(ours, b"a question is no end")
        with pytest.raises(subprocess.TimeoutExpired):
            child.wait(0.2)
        os.close(ours)
        assert child.wait(LIMIT_S) == 1
    finally:
        child.kill()
        child.communicate()
