"""A robot arm with a plan that depends on what it sees: `look` blocks until its value is reported.

Start `timely-llm serve` in one terminal and this file in another:

    python examples/arm.py
"""

import sys

from timely_llm.ros.client import PlanClient, PlanClientError, Progress

TASK = "Scene: []\nTask: [A] Clean the desk: put everything into the box."


def show(happened: Progress) -> None:
    """Print what is executed, and what it returns."""
    if happened.kind == "started":
        print(f"segment {happened.index}: {happened.text.strip()}")
    elif happened.kind == "returned" and happened.value is not None:
        print(f"  => {happened.value}")


def main() -> None:
    """Answer what the plan asks, execute the rest."""
    skills = {
        "look": lambda: "pen, blue ball",  # your camera looks here
        "pick": lambda name: None,
        "place": lambda target: None,
        "move_to": lambda place: None,
        "open": lambda: None,
        "close": lambda: None,
        "say": print,
    }
    with PlanClient("arm_1", skill_set="arm") as client:
        done = client.execute(TASK, skills, on_progress=show)
        print(f"done after {len(done.calls)} calls")


if __name__ == "__main__":
    try:
        main()
    except PlanClientError as error:  # no server, no plan
        sys.exit(f"arm: {error}")
