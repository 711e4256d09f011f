"""`python -m timely_llm.ros.recorder`: the node of `timely_llm.ros.bags.recorder`."""

import sys

from timely_llm.ros.bags.recorder import main

__all__ = ["main"]

if __name__ == "__main__":
    sys.exit(main())
