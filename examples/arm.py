"""A robot arm whose plan depends on what it sees: `look` blocks until its value is reported.

Start `timely-llm serve` in one terminal and this file in another:

    python examples/arm.py
"""

import sys

from timely_llm.ros.client import PlanClient, PlanClientError

TASK = "Scene: []\nTask: [A] Clean the desk: put everything into the box."


def main() -> None:
    """Answer what the plan asks, execute the rest."""
    with PlanClient("arm_1", skill_set="arm") as client:
        task = client.submit(TASK)
        for segment in task.segments():
            value = "pen, blue ball" if segment.blocking else ""  # your camera looks here
            print(f"segment {segment.index}: {segment.text.strip()} {value and '=> ' + value}")
            task.finished(segment, value=value)
        print(f"done after {task.result().segments} segments")


if __name__ == "__main__":
    try:
        main()
    except PlanClientError as error:  # no server, no plan
        sys.exit(f"arm: {error}")
