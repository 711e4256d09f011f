"""A drone that asks for a plan and flies each segment as soon as it comes.

Start `timely-llm serve` in one terminal and this file in another:

    python examples/fly.py
"""

import sys
import time

from timely_llm.ros.client import PlanClient, PlanClientError

TASK = "Scene: [chair]\nTask: [A] Find the cat and go to it. Take a picture of it."


def main() -> None:
    """Ask, execute, report."""
    with PlanClient("drone_1") as client:
        task = client.submit(TASK)
        for segment in task.segments():
            print(f"segment {segment.index}: {segment.text}")
            task.started(segment)
            time.sleep(segment.predicted_s)  # your robot moves here, by segment.calls
            task.finished(segment)
        result = task.result()
        print(f"done: {result.plan} (the first segment came after {result.response_s:.2f} s)")


if __name__ == "__main__":
    try:
        main()
    except PlanClientError as error:  # no server, no plan
        sys.exit(f"fly: {error}")
