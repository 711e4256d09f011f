"""A front that prints the ids of its replicas, then ticks: `python -m test.cluster.orphans`."""

import sys

from test.cluster.front import Front

if __name__ == "__main__":
    front = Front(cluster=sys.argv[1], replicas=2)
    print(*front.replicas.pids.values(), flush=True)
    front.until(lambda: False, 600.0)
