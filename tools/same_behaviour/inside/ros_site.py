"""Records a real server of the tree at hand: JSON of its ROS interface; the bag stays.

Arguments: a trace to replay, a folder for the bag, the ROS domain.
"""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import rclpy
from rclpy.action.graph import get_action_server_names_and_types_by_node
from rclpy.node import Node, NodeNameNonExistentError

WAIT_S = 60.0
REST_S = 2.0
REPLAY_S = 120.0
SERVER = "plan_server"
RECORDER = "recorder"
NODES = (SERVER, RECORDER)
SERVER_PARAMETERS = {
    "engine": "simulated", "pace": "millisecond", "publish_steps": "true", "stats_period_s": "0.1",
}  # fmt: skip


def node_command(name: str, parameters: dict[str, str]) -> list[str]:
    """Return the command of a node."""
    pairs = [word for key, value in parameters.items() for word in ("-p", f"{key}:={value}")]
    return [sys.executable, "-m", "timely_llm.entry", name, "--ros-args", *pairs]


@contextlib.contextmanager
def running(command: list[str]) -> Iterator[subprocess.Popen[bytes]]:
    """Start a process; end it by SIGINT, or by SIGKILL if that takes too long."""
    process = subprocess.Popen(command, stdout=sys.stderr, stderr=sys.stderr)
    try:
        yield process
    finally:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(WAIT_S / 2)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def until(ready: Callable[[], bool], what: str) -> None:
    """Wait for a condition; end the script if it does not come."""
    end_s = time.monotonic() + WAIT_S
    while not ready():
        if time.monotonic() > end_s:
            sys.exit(f"{what} within {WAIT_S:.0f} s")
        time.sleep(0.05)


def profile(info: Any) -> dict[str, str]:
    """Return the quality of service of an endpoint."""
    qos = info.qos_profile
    return {
        "reliability": qos.reliability.name,
        "durability": qos.durability.name,
        "liveliness": qos.liveliness.name,
        "deadline_ns": str(qos.deadline.nanoseconds),
        "lifespan_ns": str(qos.lifespan.nanoseconds),
        "lease_ns": str(qos.liveliness_lease_duration.nanoseconds),
    }


def graph(node: Node) -> dict[str, Any]:
    """Return the topics, services and actions of the nodes."""
    found: dict[str, Any] = {}
    for name in NODES:
        publishers = node.get_publisher_names_and_types_by_node(name, "/")
        subscribers = node.get_subscriber_names_and_types_by_node(name, "/")
        ends = (
            ("publishers", publishers, node.get_publishers_info_by_topic),
            ("subscriptions", subscribers, node.get_subscriptions_info_by_topic),
        )
        own: dict[str, Any] = {
            kind: {
                topic: {"types": types, "qos": [
                    profile(info) for info in infos(topic) if info.node_name == name
                ]}
                for topic, types in sorted(pairs)
            }
            for kind, pairs, infos in ends
        }  # fmt: skip
        own["services"] = dict(sorted(node.get_service_names_and_types_by_node(name, "/")))
        own["actions"] = dict(sorted(get_action_server_names_and_types_by_node(node, name, "/")))
        found[name] = own
    return found


def settled(node: Node) -> dict[str, Any]:
    """Return the graph when it has not changed for a while: discovery takes time."""
    seen: dict[str, Any] = {}
    since_s = time.monotonic()

    def rests() -> bool:
        nonlocal seen, since_s
        try:
            now = graph(node)
        except NodeNameNonExistentError:  # not discovered yet
            now = {}
        if now != seen:
            seen, since_s = now, time.monotonic()
        return bool(seen) and time.monotonic() > since_s + REST_S

    until(rests, "the graph did not come to rest")
    return seen


def main(trace: str, folder: Path) -> dict[str, Any]:
    """Run a server, a recorder and a replay."""
    node = rclpy.create_node("same_behaviour")
    recorder_parameters = {"output": str(folder)}
    with running(node_command(SERVER, SERVER_PARAMETERS)):
        until(lambda: node.count_publishers(f"/{SERVER}/segments") > 0, "no server came")
        with running(node_command(RECORDER, recorder_parameters)) as recorder:
            # What is published before the recorder has found its publisher is not in the bag: the
            # requests come by actions, and all topics but the robots' are the server's.
            settled(node)
            replay = [sys.executable, "-m", "timely_llm.cli.main", "trace", "replay", trace]
            subprocess.run([*replay, "--live"], stdout=sys.stderr, check=True, timeout=REPLAY_S)
            if recorder.poll() is not None:
                sys.exit("the recorder ended early")
            site = settled(node)
    return {"site": site}


if __name__ == "__main__":
    rclpy.init(domain_id=int(sys.argv[3]))
    print(json.dumps(main(sys.argv[1], Path(sys.argv[2]))))
    rclpy.shutdown()
