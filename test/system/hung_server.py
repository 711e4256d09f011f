"""A plan server whose engine breaks on request: `hung_server.py HOW --ros-args ...`.

It breaks at the step that serves a request whose id begins with "stuck". HOW `remote` breaks
nothing: it is an engine in a process of its own that starts fast.
"""

from __future__ import annotations

import re
import signal
import string
import sys
import time
from collections.abc import Callable
from pathlib import Path

from timely_llm.engines import remote
from timely_llm.engines.remote import RemoteEngine
from timely_llm.engines.script_tokenizer import ScriptTokenizer
from timely_llm.engines.simulated import SimulatedEngine
from timely_llm.policies.contract import StepPlan
from timely_llm.ros import plan_server, plan_server_setup

ENGINES = Path(__file__).parents[1] / "engines"


def hold_the_lock() -> None:
    """Match for longer than anyone waits: `re` holds the interpreter's lock."""
    re.match(r"(a|a)*$", "a" * 40 + "b")


def die() -> None:
    raise SystemExit("asked to")


def fail() -> None:
    raise RuntimeError("CUDA error: an illegal memory access was encountered")


HOW: dict[str, Callable[[], object]] = {
    "sleeps": lambda: time.sleep(3600.0),
    "waits": lambda: signal.sigtimedwait([], 3600.0),  # in C, and signals do not end it
    "spins": lambda: all(True for _ in iter(int, 1)),
    "holds": hold_the_lock,
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
        plan_server_setup.make_engine = make_remote_engine  # type: ignore[attr-defined]
    submit = SimulatedEngine.submit

    def submit_or_break(engine: SimulatedEngine, plan: StepPlan) -> None:
        if any(key.startswith("stuck") for key in plan.keys):
            print("it breaks now", flush=True)
            breaks()
        submit(engine, plan)

    SimulatedEngine.submit = submit_or_break  # type: ignore[method-assign,assignment]
    return plan_server.main()


if __name__ == "__main__":
    sys.exit(main())
