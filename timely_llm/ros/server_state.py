"""The state of a plan server's life cycle: a health check for containers.

    python -m timely_llm.ros.server_state [--server plan_server] [--namespace NS] [--timeout 10]

Prints the state of its life cycle. Exit status 0: it is active. 1: it is not, or did not answer.
"""

from __future__ import annotations

import argparse
import sys
import time
from typing import Any

from lifecycle_msgs.srv import GetState
from rclpy.exceptions import NameValidationException
from rclpy.executors import SingleThreadedExecutor
from rclpy.node import Node

from timely_llm.core.errors import TimelyError, first_line
from timely_llm.ros.process import exit_status, ros, spin

ACTIVE = "active"
TIMEOUT_S = 10.0
AGAIN_S = 1.0
"""Period of questions, seconds: one that comes before discovery is complete may get lost."""


class NotServingError(TimelyError):
    """The server is not active, or there is none."""


def state_of(server: str, namespace: str, timeout_s: float) -> str:
    """Return the name of the state of a server's life cycle.

    Args:
        server: name of its node.
        namespace: of the node.
        timeout_s: seconds to wait for its answer.

    Raises:
        NotServingError: it did not answer in time.
    """
    node = Node("server_state", namespace=namespace, enable_rosout=False)
    executor = SingleThreadedExecutor()
    executor.add_node(node)
    client: Any = node.create_client(GetState, f"{server}/get_state")
    answers: list[Any] = []
    asked_s, end_s = 0.0, time.monotonic() + timeout_s

    def waits() -> bool:
        nonlocal asked_s
        if time.monotonic() > asked_s + AGAIN_S and client.service_is_ready():
            asked_s = time.monotonic()
            answers.append(client.call_async(GetState.Request()))
        return not any(answer.done() for answer in answers)

    try:
        spin(executor, waits, timeout_s=end_s - time.monotonic())
        for answer in answers:
            if answer.done() and (response := answer.result()) is not None:
                return str(response.current_state.label)
        raise NotServingError(f"{client.srv_name} did not answer within {timeout_s:g} s")
    finally:
        executor.shutdown(timeout_sec=0)
        node.destroy_node()


def main() -> int:
    """Ask, print the state and return the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--server", default="plan_server", help="name of its node")
    parser.add_argument("--namespace", default="", help="of the node")
    parser.add_argument("--timeout", type=float, default=TIMEOUT_S, help="seconds")
    asked = parser.parse_args()

    def work() -> None:
        with ros([]):
            try:
                state = state_of(asked.server, asked.namespace, asked.timeout)
            except NameValidationException as error:
                raise NotServingError(f"no such name can be: {first_line(error)}") from error
            print(state)
            if state != ACTIVE:
                raise NotServingError(f"{asked.server} is {state}, not {ACTIVE}")

    return exit_status("server_state", work)


if __name__ == "__main__":
    sys.exit(main())
