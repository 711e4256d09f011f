"""A node with the parameters of a plan server, in a process of its own.

It shows its liveliness or hides it, and answers or not, by lines on the standard input. Inside one
process Fast DDS counts live writers wrongly.
"""

from __future__ import annotations

import os
import queue
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import rclpy

from timely_llm.ros import interface_number
from timely_llm.ros.identity.messages import CHALLENGE

NAME = "s"


class LoneServer:
    """The server as a test sees it.

    Args:
        process: its process.
    """

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def tell(self, command: str) -> None:
        """Let the server do something: show, hide, wait (answer nothing) or answer."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{command}\n")
        self._process.stdin.flush()


@contextmanager
def lone_server(domain: int) -> Iterator[LoneServer]:
    """Run the server in a ROS domain; it shows its liveliness."""
    process = subprocess.Popen(
        [sys.executable, __file__], stdin=subprocess.PIPE, text=True,
        env={**os.environ, "ROS_DOMAIN_ID": str(domain)},
    )  # fmt: skip
    with process:  # it ends with its input
        yield LoneServer(process)


def main() -> None:
    """Do what the lines say until they end."""
    commands: queue.SimpleQueue[str] = queue.SimpleQueue()

    def read() -> None:
        for line in sys.stdin:
            commands.put(line.strip())
        commands.put("end")

    threading.Thread(target=read, daemon=True).start()
    rclpy.init()
    node = rclpy.create_node(NAME)
    interface_number.declare_number(node)
    interface_number.declare_resumes(node, True)
    interface_number.declare_replaces_plans(node, True)
    node.declare_parameter(CHALLENGE, "")
    shown: Any = interface_number.publish_number(node)
    answers = True
    while True:
        if answers:
            rclpy.spin_once(node, timeout_sec=0.02)
        try:
            command = commands.get(block=not answers)
        except queue.Empty:
            continue
        match command:
            case "show":
                shown = interface_number.publish_number(node)
            case "hide":
                node.destroy_publisher(shown)
            case "wait" | "answer":
                answers = command == "answer"
            case _:
                break
    node.destroy_node()
    rclpy.shutdown()


if __name__ == "__main__":
    main()
