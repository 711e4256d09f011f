"""`python -m timely_llm.ros.robot_fleet`: the executable `robot_fleet`."""

import sys

from timely_llm import entry

if __name__ == "__main__":
    sys.exit(entry.node("robot_fleet"))
