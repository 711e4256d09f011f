"""A client of one action: each goal, and each request, from its sending to its result."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from action_msgs.msg import GoalStatus
from rclpy.action import ActionClient
from rclpy.node import Node

from timely_llm import srv
from timely_llm.core.errors import ConfigurationError
from timely_llm.core.request import ErrorCode, PlanRequest, Request
from timely_llm.ros import qos
from timely_llm.ros.conversions import PLAN_RESULT, STREAM_RESULT, MessageTable, result_in
from timely_llm.ros.identity.server_check import ServerCheck, unchecked


class SentGoal:
    """One goal that was sent.

    Args:
        on_accepted: called when the server has accepted the goal.
        on_refused: called when the server has refused it.
        on_result: takes the result message; None: the server has forgotten the goal. Without this
            argument, the result is not requested.
    """

    def __init__(
        self,
        on_accepted: Callable[[], None] | None,
        on_refused: Callable[[], None] | None,
        on_result: Callable[[Any], None] | None,
    ) -> None:
        self._on_accepted = on_accepted
        self._on_refused = on_refused
        self._on_result = on_result
        self._waits_for: Any = None
        self._handle: Any = None
        self._canceled = False

    @property
    def accepted(self) -> bool:
        """Whether the server has accepted the goal."""
        return self._handle is not None

    def cancel(self) -> None:
        """Ask the server to cancel the goal, now or as soon as it is accepted."""
        self._canceled = True
        if self._handle is not None:
            self._handle.cancel_goal_async()

    def abandon(self) -> None:
        """Call no callback from now on."""
        self._waits_for.cancel()

    def sent(self, future: Any) -> None:
        """Wait for the server's answer."""
        self._waits_for = future
        future.add_done_callback(self._on_answer)

    def _on_answer(self, future: Any) -> None:
        if future.cancelled():
            return
        handle = future.result()
        if not handle.accepted:
            if self._on_refused is not None:
                self._on_refused()
            return
        self._handle = handle
        if self._canceled:
            handle.cancel_goal_async()
        if self._on_accepted is not None:
            self._on_accepted()
        if self._on_result is not None:
            self._waits_for = handle.get_result_async()
            self._waits_for.add_done_callback(self._on_end)

    def _on_end(self, future: Any) -> None:
        if future.cancelled() or self._on_result is None:
            return
        answer = future.result()
        known = answer.status != GoalStatus.STATUS_UNKNOWN
        self._on_result(answer.result if known else None)


class GoalClient:
    """Sends goals to one action of a plan server.

    Args:
        node: calls the callbacks when it is spun.
        action: the action's type.
        name: the action's name.
    """

    def __init__(self, node: Node, action: Any, name: str) -> None:
        self._client: ActionClient[Any, Any, Any] = ActionClient(
            node, action, name, **qos.of_action("sub")
        )

    @property
    def server_is_there(self) -> bool:
        """Whether a goal can be sent."""
        return self._client.server_is_ready()

    def await_server(self, timeout_s: float) -> None:
        """Wait until a goal can be sent.

        Raises:
            ConfigurationError: no server answered in time.
        """
        if not self._client.wait_for_server(timeout_s):
            raise ConfigurationError(f"no plan server answered within {timeout_s:g} s")

    def send(
        self,
        goal: Any,
        *,
        on_feedback: Callable[[Any], None] | None = None,
        on_accepted: Callable[[], None] | None = None,
        on_refused: Callable[[], None] | None = None,
        on_result: Callable[[Any], None] | None = None,
    ) -> SentGoal:
        """Send a goal; see `SentGoal`. `on_feedback` takes feedback messages."""
        take = None
        if on_feedback is not None:
            deliver = on_feedback

            def take(message: Any) -> None:
                deliver(message.feedback)

        made = SentGoal(on_accepted, on_refused, on_result)
        made.sent(self._client.send_goal_async(goal, take))
        return made


class RequestClient(GoalClient):
    """Sends requests to one action of a plan server; each ends with a result, or is lost.

    Args:
        node: calls the callbacks when it is spun.
        action: the action's type.
        name: the action's name, below the server's.
        server: name of the server's node.
        results: client of the server's service `get_result`.
        check: drops what the server did not sign; None: it drops nothing.
    """

    def __init__(
        self,
        node: Node,
        action: Any,
        name: str,
        server: str,
        results: Any,
        check: ServerCheck | None = None,
    ) -> None:
        super().__init__(node, action, f"{server}/{name}")
        self._server = node.resolve_service_name(server)
        self._results = results
        self._check = check or unchecked()

    def send_request(
        self,
        goal: Any,
        request: Request,
        finish: Callable[[Any], None],
        lose: Callable[[str], None],
        *,
        on_feedback: Callable[[Any], None] | None = None,
        on_accepted: Callable[[], None] | None = None,
        on_ended: Callable[[], None] = lambda: None,
        on_forgotten: Callable[[], None] | None = None,
        on_forged: Callable[[], None] = lambda: None,
    ) -> SentGoal:
        """Send a goal.

        Args:
            goal: the goal's message.
            request: the same request.
            finish: takes the result; that of a refused goal is INVALID_REQUEST.
            lose: takes the reason why no result will come.
            on_feedback: takes feedback messages.
            on_accepted: called when the server has accepted the goal.
            on_ended: called when the goal has ended, before its result is known.
            on_forgotten: called when the server has forgotten the goal, to ask for the kept result;
                None: it is asked once.
            on_forged: called when another node may have answered, to ask the server itself.
        """
        table: MessageTable[Any] = (
            PLAN_RESULT if isinstance(request, PlanRequest) else STREAM_RESULT
        )

        def on_refused() -> None:
            if self._check.active:
                on_forged()  # this answer of the action carries no signature
                return
            on_ended()
            reason = "the server did not accept the goal"
            finish(request.refused(ErrorCode.INVALID_REQUEST, reason))

        def on_result(message: Any) -> None:
            if message is not None and not self._counts(message, request):
                on_forged()
                return
            if message is None and on_forgotten is not None:
                on_forgotten()
                return
            on_ended()
            if message is not None:
                finish(table.read(message, agent=request.agent))
            elif not self.ask_result(request.request_id, on_kept):
                on_kept(srv.GetResult.Response())

        def on_kept(response: srv.GetResult.Response) -> None:
            result = result_in(response)
            if result is None or result.agent != request.agent:
                lose(f"the server {self._server} does not know this request any more")
            else:
                finish(result)

        return self.send(
            goal,
            on_feedback=on_feedback,
            on_accepted=on_accepted,
            on_refused=on_refused,
            on_result=on_result,
        )

    def ask_result(
        self, request_id: str, answered: Callable[[srv.GetResult.Response], None]
    ) -> bool:
        """Ask how a request ended; return whether there is a server to ask."""
        if not self._results.service_is_ready():
            return False
        asked = self._check.ask(self._results, srv.GetResult.Request(request_id=request_id))
        asked.add_done_callback(lambda future: answered(future.result()))
        return True

    def _counts(self, message: Any, request: Request) -> bool:
        """Return whether a result is the server's own, and of this request."""
        if not self._check.active:
            return True
        return self._check.takes(message) and message.request_id == request.request_id
