"""However a demo ends, nothing is left running."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")

HERE = Path(__file__).parents[1] / "demo"
PLAUSIBLE = [sys.executable, str(HERE / "plausible.py")]
STUBBORN = [sys.executable, str(HERE / "stubborn.py")]
SLEEPS = [sys.executable, "-c", "import time; time.sleep(600)"]
LIMIT_S = 30.0

Start = Callable[..., "Demo"]


class Demo:
    """A demo process; its children have its folder in their command lines."""

    def __init__(
        self, folder: Path, server: list[str], fleet: list[str], duration_s: float
    ) -> None:
        self.folder = folder
        words = [json.dumps(server), json.dumps(fleet), str(folder), str(duration_s)]
        self.process = subprocess.Popen(
            [sys.executable, str(HERE / "driver.py"), *words],
            env={**os.environ, "PYTHONPATH": str(HERE.parent.parent)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def children(self) -> list[int]:
        """Return the ids of its children, without those that only watch over them."""
        found = []
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                words = path.read_bytes().split(b"\0")
            except OSError:
                continue
            mine = any(str(self.folder).encode() in word for word in words)
            mine = mine and b"timely_llm.processes.tied" not in words
            if mine and int(path.parent.name) != self.process.pid:
                found.append(int(path.parent.name))
        return found

    def child(self, option: str) -> int:
        """Return the id of the child with this option."""
        for pid in self.children():
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            if any(word.startswith(option.encode()) for word in words):
                return pid
        raise AssertionError(f"no child has the option {option}")

    def wait_for(self, event: str) -> None:
        """Wait until one of the logs holds this event."""
        mark = json.dumps({"event": event})[1:-1]
        self.until(lambda: any(mark in log.read_text() for log in self.folder.glob("*.jsonl")))

    def until(self, condition: Callable[[], bool]) -> None:
        end_s = time.monotonic() + LIMIT_S
        while not condition():
            assert self.process.poll() in (None, -signal.SIGKILL), self.process.communicate()
            assert time.monotonic() < end_s, "waited for too long"
            time.sleep(0.02)

    def end(self) -> tuple[int, str]:
        """Wait for its end; return its exit status and what it complained about."""
        _, errors = self.process.communicate(timeout=LIMIT_S)
        return self.process.returncode, errors


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    made: list[Demo] = []

    def begin(
        server: list[str] = PLAUSIBLE, fleet: list[str] = PLAUSIBLE, duration_s: float = 600.0
    ) -> Demo:
        made.append(Demo(tmp_path / "demo", server, fleet, duration_s))
        return made[-1]

    yield begin
    for demo in made:
        demo.process.kill()
        demo.process.wait()
        for pid in demo.children():
            os.kill(pid, signal.SIGKILL)


def test_a_demo_that_is_left_alone_leaves_numbers_and_pictures(start: Start) -> None:
    demo = start(fleet=[*PLAUSIBLE, "speed:=10"], duration_s=5.0)
    assert demo.end() == (0, "")
    assert demo.children() == []
    numbers = json.loads((demo.folder / "numbers.json").read_text())
    assert numbers["policy"] == "timely"
    assert numbers["requests"] >= 1
    assert numbers["errors"] == 0
    for name in ("timeline-timely.png", "timeline-timely-burst.png"):
        assert (demo.folder / name).stat().st_size > 10_000


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_everything(start: Start, signum: signal.Signals) -> None:
    demo = start()
    demo.wait_for("ask")
    assert len(demo.children()) == 2
    demo.process.send_signal(signum)
    status, errors = demo.end()
    assert demo.children() == []
    assert status == 128 + signum
    assert errors == f"timely-llm: ended by {signum.name}; nothing is left running\n"


def test_an_interrupt_while_the_server_loads_ends_it(start: Start) -> None:
    demo = start(server=SLEEPS)
    demo.until(lambda: len(demo.children()) == 1)
    demo.process.send_signal(signal.SIGINT)
    assert demo.end()[0] == 130
    assert demo.children() == []


def test_two_interrupts_end_even_the_stubborn_and_their_children(start: Start) -> None:
    demo = start(server=STUBBORN, fleet=SLEEPS)
    demo.until(lambda: len(demo.children()) == 3)
    demo.process.send_signal(signal.SIGINT)
    demo.until(lambda: len(demo.children()) == 2)
    demo.process.send_signal(signal.SIGINT)
    status, errors = demo.end()
    assert demo.children() == []
    assert status == 130
    assert "Traceback" not in errors


def test_killing_the_demo_kills_its_children(start: Start) -> None:
    demo = start()
    demo.wait_for("ask")
    demo.process.kill()
    demo.until(lambda: not demo.children())


@pytest.mark.parametrize(
    ("option", "name"), [("event_log:=", "plan server"), ("log:=", "robot fleet")]
)
def test_the_death_of_a_child_ends_the_demo(start: Start, option: str, name: str) -> None:
    demo = start()
    demo.wait_for("ask")
    os.kill(demo.child(option), signal.SIGKILL)
    status, errors = demo.end()
    assert demo.children() == []
    assert status == 1
    assert f"timely-llm: the {name} was ended by SIGKILL; it printed nothing" in errors
    assert len(errors.splitlines()) == 1


def test_a_server_that_cannot_start_is_quoted(start: Start) -> None:
    last = "plan_server: there is no model in /nowhere"
    demo = start(server=[sys.executable, "-c", f"print('loading'); raise SystemExit({last!r})"])
    status, errors = demo.end()
    assert demo.children() == []
    assert status == 1
    assert f"the plan server ended with status 1; its last words: {last}" in errors
    assert len(errors.splitlines()) == 1
