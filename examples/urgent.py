"""A drone in the middle of a plan, when a dog comes: what is urgent goes first.

Start `timely-llm serve` in one terminal and this file in another:

    python examples/urgent.py
"""

import sys

from timely_llm.core.time_utility import URGENT
from timely_llm.ros.client import PlanClient, PlanClientError

PATROL = "Scene: []\nTask: [A] Go up 50 cm, wait 3 seconds, move left 100 cm and take a picture."
DANGER = "Scene: [dog]\nTask: [E] A dog is 50 cm ahead!"


def main() -> None:
    """Drop a plan for an urgent one; when that fails, get another."""
    with PlanClient("drone_1") as client:
        patrol = client.submit(PATROL)
        first = next(patrol.segments())
        print(f"on patrol: {first.text}")
        danger = client.submit(DANGER, URGENT)
        patrol.cancel()
        for segment in danger.segments():
            print(f"plan {segment.epoch}, segment {segment.index}: {segment.text}")
            if segment.epoch == 0 and segment.index == 0:
                danger.failed(segment, "the ceiling is in the way")  # the model is asked again
            else:
                danger.finished(segment)
        print(f"safe after {danger.result().response_s:.2f} s")


if __name__ == "__main__":
    try:
        main()
    except PlanClientError as error:  # no server, no plan
        sys.exit(f"urgent: {error}")
