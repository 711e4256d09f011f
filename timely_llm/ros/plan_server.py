"""`python -m timely_llm.ros.plan_server`: the node of `timely_llm.ros.server.node`."""

import sys

from timely_llm.ros.server.node import main

__all__ = ["main"]

if __name__ == "__main__":
    sys.exit(main())
