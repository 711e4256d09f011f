"""A Ray cluster of a head and two nodes with a replica each: `python -m test.cluster.two_nodes`.

It is a process of its own because Ray reads its variables once in a process.
"""

import os
import tempfile
import threading
from pathlib import Path
from typing import Any

from test.cluster.front import Front
from timely_llm.core.errors import ConfigurationError
from timely_llm.core.request import ErrorCode, ExecutionReport, PlanRequest, ReportState
from timely_llm.core.segment import Segment

KEYS = [f"plan {number}" for number in range(8)]
SLOW = "{name: slow, source: made up, base_s: 0.05, row_s: 0.0, prefill_token_s: 0.0}"
"""Step times with which plans still go on when the node is dead."""
SAID = "found: "
"""Before each line of this process: Ray writes between them."""


def submit(front: Front, **given: Any) -> None:
    """Ask for eight plans."""
    for key in KEYS:
        front.relay.submit(PlanRequest(key, key, "drone", "look for the cat", **given))


def served(front: Front) -> str:
    """Let eight plans end; return the names of the replicas that served them."""
    front.results.clear()
    submit(front)
    used: set[str] = set()

    def done() -> bool:
        used.update(filter(None, front.servers_of(*KEYS)))
        return len(front.results) == len(KEYS)

    front.until(done)
    return ", ".join(sorted(used))


def outlive(front: Front, cluster: Any, node: Any) -> str:
    """Kill a node while robots execute eight plans; return what became of the plans."""
    front.results.clear()
    front.segments.clear()
    submit(front, closed_loop=True)
    front.until(lambda: all(front.segments[key] for key in KEYS))
    before = front.servers_of(*KEYS)
    killing = threading.Thread(target=cluster.remove_node, args=(node, False))
    killing.start()
    front.until(lambda: len(front.relay.servers) == 1)
    killing.join()
    (left,) = front.relay.servers
    moved = [key for key, name in zip(KEYS, before, strict=True) if name != left]
    reported: set[Segment] = set()

    def done() -> bool:
        for one in [one for key in KEYS for one in front.segments[key]]:
            if one not in reported and one.request_id not in front.results:
                reported.add(one)
                front.relay.report(finished(one))
        return len(front.results) == len(KEYS)

    front.until(done)
    ended = sum(one.error_code is ErrorCode.NONE for one in front.results.values())
    executed = [(key, one.epoch, one.index) for key in KEYS for one in front.segments[key]]
    assert len({*executed}) == len(executed), "a segment came twice"
    assert any(front.segments[key][-1].epoch == 1 for key in moved), "all segments had come before"
    return f"{ended} of {len(KEYS)} plans ended well, those of the dead node elsewhere"


def finished(one: Segment) -> ExecutionReport:
    """Return what a robot says of a segment that it has executed."""
    value = "True" if one.blocking else ""
    return ExecutionReport(
        one.request_id, one.agent, ReportState.FINISHED, one.index, 0.1, value, one.epoch
    )


if __name__ == "__main__":
    os.environ |= {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0", "RAY_AUTH_MODE": "disabled"}
    import ray
    from ray.cluster_utils import Cluster

    small = {"object_store_memory": 75 * 2**20, "num_cpus": 1}
    cluster = Cluster(initialize_head=True, head_node_args=small)
    try:
        nodes = [cluster.add_node(resources={"arm": 1}, **small) for _ in range(2)]
        given = {"cluster": f"ray:{cluster.address}", "replica_resources": ["arm=1"]}
        pace = Path(tempfile.mkdtemp(), "slow.yaml")
        pace.write_text(SLOW)
        front = Front(replicas=2, pace=f"measured:{pace}", **given)
        left = ray.available_resources().get("arm", 0.0)
        said = [f"served by {served(front)}, which leave {left:g} of 2 arms"]
        said.append(outlive(front, cluster, nodes[1]))
        cluster.add_node(resources={"arm": 1}, **small)
        front.until(lambda: front.complete())
        said.append(f"with another node: {', '.join(sorted(front.relay.servers))}")
        front.until(lambda: sum(node["Alive"] for node in ray.nodes()) == 3)  # Ray knows it too
        front.close()
        try:
            Front(replicas=3, **given)
        except ConfigurationError as error:
            said.append(str(error))
        print("".join(f"\n{SAID}{line}" for line in said))
    finally:
        cluster.shutdown()
