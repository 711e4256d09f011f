"""`python -m timely_llm.ros.plan_server`: the executable `plan_server`."""

import sys

from timely_llm import entry

if __name__ == "__main__":
    sys.exit(entry.node("plan_server"))
