"""`python -m timely_llm.ros.talkers`: the node of `timely_llm.ros.fleet.talkers`."""

import sys

from timely_llm.ros.fleet.talkers import main

__all__ = ["main"]

if __name__ == "__main__":
    sys.exit(main())
