"""A Ray cluster of a head and two nodes with a replica each: `python -m test.cluster.two_nodes`.

It is a process of its own because Ray reads its variables once in a process.
"""

import os

from test.cluster.front import Front
from timely_llm.core.errors import ConfigurationError
from timely_llm.core.request import PlanRequest

if __name__ == "__main__":
    os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"
    import ray
    from ray.cluster_utils import Cluster

    small = {"object_store_memory": 75 * 2**20, "num_cpus": 1}
    cluster = Cluster(initialize_head=True, head_node_args=small)
    try:
        for _ in range(2):
            cluster.add_node(resources={"arm": 1}, **small)
        given = {"cluster": f"ray:{cluster.address}", "replica_resources": ["arm=1"]}
        front = Front(replicas=2, **given)
        left = ray.available_resources().get("arm", 0.0)
        keys = [f"plan {number}" for number in range(8)]
        for key in keys:
            front.relay.submit(PlanRequest(key, key, "drone", "look for the cat"))
        used: set[str] = set()

        def done() -> bool:
            used.update(filter(None, front.servers_of(*keys)))
            return len(front.results) == len(keys)

        front.until(done)
        front.close()
        print(f"served by {', '.join(sorted(used))}, which leave {left:g} of 2 arms")
        try:
            Front(replicas=3, **given)
        except ConfigurationError as error:
            print(error)
    finally:
        cluster.shutdown()
