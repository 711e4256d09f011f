"""`python -m timely_llm.ros.robot_fleet`: the node of `timely_llm.ros.fleet.robot_fleet`."""

import sys

from timely_llm.ros.fleet.robot_fleet import main

__all__ = ["main"]

if __name__ == "__main__":
    sys.exit(main())
