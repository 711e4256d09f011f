"""`python -m timely_llm.ros.talkers`: the executable `talkers`."""

import sys

from timely_llm import entry

if __name__ == "__main__":
    sys.exit(entry.node("talkers"))
