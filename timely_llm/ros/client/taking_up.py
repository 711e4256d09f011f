"""The way of a client's open requests to the next server, over ROS."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any

from timely_llm import srv
from timely_llm.core.request import ExecutionReport
from timely_llm.core.segment import Segment
from timely_llm.robots.client.taking_up import RequestFate
from timely_llm.ros import conversions
from timely_llm.ros.client.node import RequestNode


class WatchedServer:
    """An `AskedServer` that a client's node asks; for the client's thread.

    Args:
        node: the client's.
    """

    def __init__(self, node: RequestNode[Any]) -> None:
        self._node = node

    @property
    def name(self) -> str:
        """The server's full name."""
        return self._node.server

    @property
    def resumes(self) -> bool:
        """Whether requests that are open at its end go on at the next server."""
        return self._node.watch.resumes

    def find(self) -> bool:
        """Go on looking for a server; return whether it is found; see `ServerWatch.find`."""
        return self._node.watch.find(lambda: self._node.server_is_there)

    def stop_asking(self, request_id: str) -> None:
        """End the inquiries about a request."""
        self._node.inquiries.close(request_id)

    def ask_segments(
        self, request_id: str, agent: str, answered: Callable[[Sequence[Segment] | None], None]
    ) -> None:
        """Call `~/get_segments`."""

        def read(response: srv.GetSegments.Response) -> None:
            known = not response.error_code
            answered(list(map(conversions.SEGMENT.read, response.segments)) if known else None)

        answer: Future[Any] = Future()
        answer.add_done_callback(lambda future: read(future.result()))
        self._node.ask_segments(request_id, agent, answer)

    def ask_result(self, request_id: str, answered: Callable[[RequestFate], None]) -> None:
        """Call `~/get_result`."""

        def read(response: srv.GetResult.Response) -> None:
            made = response.answer
            answered(
                RequestFate(
                    response.state == response.SERVED, conversions.result_in(response), made.text,
                    made.generated_tokens,
                )
            )  # fmt: skip

        self._node.ask_result(request_id, read)

    def take_up(self, request_id: str) -> None:
        """Follow a request without its goal, which no server knows now."""
        self._node.take_up(request_id)

    def cancel(self, request_id: str) -> None:
        """Call `~/cancel_request`."""
        self._node.cancel(request_id)

    def report(self, report: ExecutionReport) -> None:
        """Publish a report."""
        self._node.report(report)
