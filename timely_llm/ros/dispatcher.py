"""`python -m timely_llm.ros.dispatcher`: the executable `dispatcher`."""

import sys

from timely_llm import entry

if __name__ == "__main__":
    sys.exit(entry.node("dispatcher"))
