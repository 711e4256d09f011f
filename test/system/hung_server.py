"""A plan server with an engine that breaks on request: `hung_server.py HOW --ros-args ...`.

It breaks at the step of a request with an id that begins with "stuck". HOW `remote` breaks
nothing: it is an engine in a process of its own that starts fast.
"""

from __future__ import annotations

import ctypes
import re
import signal
import string
import sys
import time
from collections.abc import Callable
from pathlib import Path

from timely_llm.cluster import configured
from timely_llm.core.step import StepPlan
from timely_llm.engines import remote
from timely_llm.engines.remote import RemoteEngine
from timely_llm.engines.simulated import ScriptTokenizer, SimulatedEngine
from timely_llm.ros.server import node

ENGINES = Path(__file__).parents[1] / "engines"


def hold_the_lock() -> None:
    """Match for longer than any wait: `re` holds the interpreter's lock."""
    re.match(r"(a|a)*$", "a" * 40 + "b")


napped: list[bool] = []


def nap() -> None:
    """Hold the interpreter's lock once for longer than a client waits for a sign of life."""
    if not napped:
        napped.append(True)
        ctypes.PyDLL(None).usleep(4_000_000)


def die() -> None:
    raise SystemExit("asked to")


def fail() -> None:
    raise RuntimeError("CUDA error: an illegal memory access was encountered")


HOW: dict[str, Callable[[], object]] = {
    "sleeps": lambda: time.sleep(3600.0),
    "waits": lambda: signal.sigtimedwait([], 3600.0),  # in C, and signals do not end it
    "spins": lambda: all(True for _ in iter(int, 1)),
    "holds": hold_the_lock,
    "naps": nap,
    "dies": die,
    "fails": fail,
    "remote": lambda: None,
}


def make_remote_engine(*args: object, **options: object) -> RemoteEngine:
    words = ScriptTokenizer()
    words.ids(string.printable)  # as on the other side, each letter is a token
    return RemoteEngine(words, {"name": "letters", "max_model_len": 4096})


def main() -> int:
    how = sys.argv.pop(1)
    breaks = HOW[how]
    if how == "remote":
        sys.path.insert(0, str(ENGINES))
        remote.CHILD = "letters_child"
        configured.make_engine = make_remote_engine  # type: ignore[attr-defined]
    submit = SimulatedEngine.submit

    def submit_or_break(engine: SimulatedEngine, plan: StepPlan) -> None:
        if any(key.startswith("stuck") for key in plan.keys):
            print("it breaks now", flush=True)
            breaks()
        submit(engine, plan)

    SimulatedEngine.submit = submit_or_break  # type: ignore[method-assign,assignment]
    return node.main()


if __name__ == "__main__":
    sys.exit(main())
