"""Command lines and environments of nodes."""

from __future__ import annotations

import json
import secrets
import socket
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ENTRY = (sys.executable, "-m", "timely_llm.entry")
SERVER = (*ENTRY, "plan_server")
DISPATCHER = (*ENTRY, "dispatcher")
FLEET = (*ENTRY, "robot_fleet")
TALKERS = (*ENTRY, "talkers")
STAND_IN = (sys.executable, "-m", "timely_llm.cli.main", "cloud-stand-in")
RECORDER = (*ENTRY, "recorder")
PROBE = (sys.executable, "-m", "timely_llm.ros.probes.delivery_probe")
ATTACK_PROBE = (sys.executable, "-m", "timely_llm.ros.probes.attack_probe")
KILLS_PROBE = (sys.executable, "-m", "timely_llm.ros.probes.kills_probe")
RECORD_PROBE = (sys.executable, "-m", "timely_llm.ros.probes.record_probe")


DOMAINS = range(1, 101)
_held: list[socket.socket] = []


def occupied_domains() -> set[int]:
    """Return the ROS domains in which a participant of this machine listens.

    A participant binds UDP ports of its domain (DDSI-RTPS 2.2, 9.6.1.1: 7400 + 250 domain and the
    249 that follow). Only Linux lists them; elsewhere the result is empty.
    """
    try:
        table = Path("/proc/net/udp").read_text(encoding="ascii").splitlines()[1:]
    except OSError:
        return set()
    ports = [int(line.split()[1].rpartition(":")[2], base=16) for line in table]
    return {(port - 7400) // 250 for port in ports if port >= 7400}


def random_domain() -> int:
    """Return a random ROS_DOMAIN_ID that no other process got from this function and still holds.

    Nor does a participant of this machine listen in it. This process holds it until it ends, by an
    address without a file.
    """
    domains = sorted(set(DOMAINS) - occupied_domains()) or list(DOMAINS)
    secrets.SystemRandom().shuffle(domains)
    for domain in domains if sys.platform == "linux" else ():
        held = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            held.bind(f"\0timely_llm/domain/{domain}".encode())
        except OSError:
            held.close()
        else:
            _held.append(held)
            return domain
    return domains[0]


def ros_command(command: Sequence[str], parameters: Mapping[str, Any]) -> list[str]:
    """Return a node's command line; parameters that are None keep the node's default.

    Values are written as JSON, which is YAML: a model called "1e3" stays a text.
    """
    given = {name: value for name, value in parameters.items() if value is not None}
    pairs = [f"{name}:={json.dumps(value)}" for name, value in given.items()]
    return [*command, "--ros-args", *(word for pair in pairs for word in ("-p", pair))]


def in_namespace(namespace: str) -> list[str]:
    """Return ROS arguments that put a node into a namespace, with or without its first slash."""
    return ["-r", f"__ns:=/{namespace.strip('/')}"] if namespace.strip("/") else []


def local_environment(domain: int) -> dict[str, str]:
    """Return variables that keep processes in a ROS domain of their own, on this machine only."""
    return {
        "ROS_DOMAIN_ID": str(domain),
        "ROS_AUTOMATIC_DISCOVERY_RANGE": "LOCALHOST",
        "OMP_NUM_THREADS": "1",
        "PYTHONUNBUFFERED": "1",
    }
