"""A plan server of another release: `other_server.py NUMBER --ros-args ...`; 0: one of 0.1."""

from __future__ import annotations

import sys

import rclpy
from rclpy.action import ActionServer
from rclpy.executors import ExternalShutdownException

from timely_llm import srv
from timely_llm.action import Plan
from timely_llm.ros import interface_number
from timely_llm.ros.server import node as plan_server


def serve_as_before_numbers() -> int:
    """Have the names that a server of 0.1 had, and answer nothing."""
    rclpy.init()
    node = rclpy.create_node("plan_server")
    node.create_service(srv.ListRequests, "~/list_requests", lambda _, response: response)
    ActionServer(node, Plan, "plan", lambda _: Plan.Result())
    try:
        rclpy.spin(node)
    except (KeyboardInterrupt, ExternalShutdownException):
        return 0
    return 1


def main() -> int:
    number = int(sys.argv.pop(1))
    if not number:
        return serve_as_before_numbers()
    interface_number.INTERFACE = number
    return plan_server.main()


if __name__ == "__main__":
    sys.exit(main())
