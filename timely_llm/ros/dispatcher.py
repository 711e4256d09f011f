"""`python -m timely_llm.ros.dispatcher`: the node of `timely_llm.ros.dispatch.node`."""

import sys

from timely_llm.ros.dispatch.node import main

__all__ = ["main"]

if __name__ == "__main__":
    sys.exit(main())
