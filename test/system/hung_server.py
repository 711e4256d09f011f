"""A plan server whose engine breaks on request: `hung_server.py HOW --ros-args ...`.

It breaks at the step that serves a request whose id begins with "stuck".
"""

from __future__ import annotations

import re
import signal
import sys
import time
from collections.abc import Callable

from timely_llm.engines.simulated import SimulatedEngine
from timely_llm.policies.contract import StepPlan
from timely_llm.ros import plan_server


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
}


def main() -> int:
    breaks = HOW[sys.argv.pop(1)]
    submit = SimulatedEngine.submit

    def submit_or_break(engine: SimulatedEngine, plan: StepPlan) -> None:
        if any(key.startswith("stuck") for key in plan.keys):
            print("it breaks now", flush=True)
            breaks()
        submit(engine, plan)

    SimulatedEngine.submit = submit_or_break  # type: ignore[method-assign]
    return plan_server.main()


if __name__ == "__main__":
    sys.exit(main())
