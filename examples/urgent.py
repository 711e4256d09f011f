"""A drone in the middle of a plan, when a dog comes: what is urgent goes first.

Start `timely-llm serve` in one terminal and this file in another:

    python examples/urgent.py
"""

import sys
import threading

from timely_llm.core.segment import SkillCall
from timely_llm.core.time_utility import URGENT
from timely_llm.ros.client import (
    Execution,
    PlanClient,
    PlanClientError,
    PlanTask,
    Progress,
    SkillFailed,
)

PATROL = "Scene: []\nTask: [A] Go up 50 cm, wait 3 seconds, move left 100 cm and take a picture."
DANGER = "Scene: [dog]\nTask: [E] A dog is 50 cm ahead!"


class Drone:
    """Flies until it arrives, or until its plan is void; the first flight of an escape fails."""

    def __init__(self) -> None:
        self.flying = threading.Event()
        self.escapes = 0

    def fly(self, call: SkillCall, *, execution: Execution) -> bool:
        """Do whatever a plan says, and look whether it still holds."""
        print(f"on patrol: {call}")
        self.flying.set()
        return not execution.wait(call.predicted_s)

    def escape(self, call: SkillCall) -> bool:
        """Do it at once."""
        self.escapes += 1
        if self.escapes == 1:
            raise SkillFailed("the ceiling is in the way")  # the model is asked again
        return True


def patrol_until_canceled(patrol: PlanTask, drone: Drone) -> None:
    """Execute a plan that is canceled sooner or later."""
    try:
        patrol.execute({}, otherwise=drone.fly)
    except PlanClientError as error:
        print(f"the patrol ends: {error}")


def show(happened: Progress) -> None:
    """Print each segment when its execution begins."""
    if happened.kind == "started":
        print(f"plan {happened.epoch}, segment {happened.index}: {happened.text.strip()}")


def main() -> None:
    """Drop a plan for an urgent one; when that fails, get another."""
    drone = Drone()
    with PlanClient("drone_1") as client:
        patrol = client.submit(PATROL)
        pilot = threading.Thread(target=patrol_until_canceled, args=(patrol, drone))
        pilot.start()
        drone.flying.wait(30.0)
        danger = client.submit(DANGER, URGENT)
        patrol.cancel()
        pilot.join()
        done = danger.execute({}, otherwise=drone.escape, on_progress=show)
        print(f"safe after {done.result.response_s:.2f} s, with {done.epochs} plans")


if __name__ == "__main__":
    try:
        main()
    except PlanClientError as error:  # no server, no plan
        sys.exit(f"urgent: {error}")
