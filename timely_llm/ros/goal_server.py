"""An action server whose results can be asked for long after their goals have left its table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from rclpy.action import ActionServer
from rclpy.action.server import ServerGoalHandle
from rclpy.node import Node

from timely_llm.ros import qos
from timely_llm.serving.results import Results

TABLE_S = 1
"""How long an ended goal stays in the table of the action server, seconds.

At each change of any goal the states of all in the table are published, to every client: with a
thousand ended goals in it each new one costs 30 ms.
"""


@dataclass(frozen=True)
class Ended:
    """How a goal ended, as the action's clients are told: its state and its result."""

    status: int
    result: Any


class GoalServer(ActionServer[Any, Any, Any]):
    """An action server that remembers results in a store of its own, bounded in memory.

    Args:
        node: the server is the node's.
        kind: the action.
        name: the action's.
        on_goal: takes a new goal; its execution begins when its result is there.
        on_cancel: as rclpy's `cancel_callback`.
        ended: keeps how goals ended, by `key_of`.
        now: seconds on the clock of `ended`.
        on_unknown: told of each question for a goal that nobody knows.
    """

    def __init__(
        self,
        node: Node,
        kind: Any,
        name: str,
        on_goal: Callable[[ServerGoalHandle[Any, Any, Any]], None],
        on_cancel: Callable[[ServerGoalHandle[Any, Any, Any]], Any],
        ended: Results[Ended],
        now: Callable[[], float],
        on_unknown: Callable[[str], None],
    ) -> None:
        self._ended = ended
        self._now = now
        self._on_unknown = on_unknown
        super().__init__(
            node, kind, name,
            lambda _: kind.Result(),  # not used: each goal is executed with a function of its own
            handle_accepted_callback=on_goal, cancel_callback=on_cancel, result_timeout=TABLE_S,
            **qos.of_action("pub"),
        )  # fmt: skip

    async def _execute_get_result_request(self, request_header_and_message: Any) -> None:
        """Answer who asks how a goal ended, also when the table has forgotten it."""
        header, request = request_header_and_message
        if bytes(request.goal_id.uuid) in self._goal_handles:
            await super()._execute_get_result_request(request_header_and_message)
            return
        key = bytes(request.goal_id.uuid).hex()
        response = self._action_type.Impl.GetResultService.Response()
        kept = self._ended.get(key, self._now())
        if kept is None:
            self._on_unknown(key)  # the state of an empty response is STATUS_UNKNOWN
        else:
            response.status, response.result = kept.status, kept.result
        with self._lock:
            self._handle.send_result_response(header, response)


def key_of(handle: ServerGoalHandle[Any, Any, Any]) -> str:
    """Return the name of a goal in the store of results."""
    return bytes(handle.goal_id.uuid).hex()


def forget_request(handle: ServerGoalHandle[Any, Any, Any]) -> None:
    """Free the memory of what an ended goal asked; its handle stays in the table for a while."""
    handle._goal_request = type(handle.request)()
