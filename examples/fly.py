"""A drone that asks for a plan and executes it as it comes.

Start `timely-llm serve` in one terminal and this file in another:

    python examples/fly.py
"""

import sys
import time

from timely_llm.ros.client import PlanClient, PlanClientError, Progress

TASK = "Scene: [chair]\nTask: [A] Find the cat and go to it. Take a picture of it."


class Drone:
    """The skills that differ from moving for a while; your robot acts here."""

    def s(self, name: str) -> bool:
        """Look around; the plan's conditions are decided by what comes back."""
        return name == "cat"

    def iv(self, name: str) -> bool:
        """Return whether an object is in view."""
        return name == "chair"

    def tp(self) -> None:
        """Take a picture; what raises is reported, and a new plan comes."""
        print("  click")


def show(happened: Progress) -> None:
    """Print what is executed."""
    if happened.kind == "started":
        print(f"segment {happened.index}: {happened.text.strip()}")
    elif happened.kind == "call":
        print(f"  {happened.call}")


def main() -> None:
    """Ask and execute: conditions, loops and reports are taken care of."""
    with PlanClient("drone_1") as client:
        done = client.execute(
            TASK, Drone(), on_progress=show,
            otherwise=lambda call: time.sleep(call.predicted_s),  # all that moves
        )  # fmt: skip
        response_s = done.result.response_s
        print(f"done: {done.plan} (the first segment came after {response_s:.2f} s)")


if __name__ == "__main__":
    try:
        main()
    except PlanClientError as error:  # no server, no plan
        sys.exit(f"fly: {error}")
