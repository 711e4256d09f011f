"""`python -m timely_llm.ros.recorder`: the executable `recorder`."""

import sys

from timely_llm import entry

if __name__ == "__main__":
    sys.exit(entry.node("recorder"))
