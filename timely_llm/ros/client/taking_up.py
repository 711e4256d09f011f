"""Taking up: what a client does with its open requests when their server is gone."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from timely_llm import srv
from timely_llm.core.errors import ConfigurationError
from timely_llm.core.request import ExecutionReport
from timely_llm.core.text import quoted
from timely_llm.robots.client.pending import Pending
from timely_llm.robots.client.plan_task import PlanTask
from timely_llm.ros import conversions
from timely_llm.ros.client.node import RequestNode

AnyTask = TypeVar("AnyTask", bound=Pending[Any])
AGAIN_S = 0.5
"""Period of questions for a request, seconds."""
PATIENCE_S = 2.0
"""Longest time that a question is on its way, seconds."""
TAKEN_S = 8.0
"""Time in which a new dispatcher finds what its servers have, seconds."""


@dataclass
class Kept(Generic[AnyTask]):
    """A request without a server.

    Attributes:
        task: the request.
        reason: why the last server is lost.
        end_s: until when a server is looked for.
        found_s: since when there is a server.
        asked_s: when it was last asked.
        answered: it answered the last question.
    """

    task: AnyTask
    reason: str
    end_s: float
    found_s: float = math.inf
    asked_s: float = -math.inf
    answered: bool = True


class TakingUp(Generic[AnyTask]):
    """Keeps open requests while there is no server, and takes them up at the next one.

    That one sends what it makes from then on, and the result. For the client's thread.

    Args:
        node: the client's.
        result: class of the requests' results.
        recovery_s: longest time without a server, seconds; 0: a request is lost with its server.
    """

    def __init__(self, node: RequestNode[Any], result: type[Any], recovery_s: float) -> None:
        self._node = node
        self._result = result
        self._recovery_s = recovery_s
        self._kept: dict[str, Kept[AnyTask]] = {}

    def report(self, report: ExecutionReport) -> None:
        """Send a report."""
        self._node.report(report)

    def keep(self, tasks: Sequence[AnyTask], reason: str) -> None:
        """Keep requests, or lose them if their server does not resume requests.

        Args:
            tasks: the open requests.
            reason: why the server is lost.
        """
        resumes = self._node.watch.resumes and self._recovery_s > 0
        for task in tasks:
            if resumes:
                self._node.inquiries.close(task.request_id)
                end_s = time.monotonic() + self._recovery_s
                self._kept[task.request_id] = Kept(task, reason, end_s)
            else:
                task.lose(reason)

    def tick(self, open_ids: Sequence[str]) -> None:
        """Look for a server, and ask it for the requests.

        Args:
            open_ids: ids of the open requests.
        """
        for kept in list(self._kept.values()):
            if kept.task.done:
                self._forget(kept)
            elif time.monotonic() >= kept.end_s and kept.found_s == math.inf:
                self._lose(kept, kept.reason)
        if not self._kept:
            return
        try:
            found = self._node.watch.find(lambda: self._node.server_is_there)
        except ConfigurationError as error:
            for kept in list(self._kept.values()):
                self._lose(kept, str(error))
            return
        now = time.monotonic()
        for kept in list(self._kept.values()) if found else ():
            if now >= kept.asked_s + (AGAIN_S if kept.answered else PATIENCE_S):
                kept.asked_s, kept.answered, kept.found_s = now, False, min(kept.found_s, now)
                self._ask(kept)

    def _ask(self, kept: Kept[AnyTask]) -> None:
        """Ask the server for a request."""
        self._node.ask_result(
            kept.task.request_id, lambda response: self._on_result(kept, response)
        )

    def _on_result(self, kept: Kept[AnyTask], response: srv.GetResult.Response) -> None:
        if not self._waits(kept):
            return
        kept.answered = True
        result = conversions.result_in(response)
        if isinstance(result, self._result) and result.agent == kept.task.agent:
            self._forget(kept)
            kept.task.finish(result)
        elif response.state == response.SERVED:
            self._on_served(kept, response)
        elif response.state == response.UNKNOWN and (
            not self._node.watch.resumes or time.monotonic() > kept.found_s + TAKEN_S
        ):
            self._lose(
                kept,
                f"the server {self._node.server} does not know the request"
                f" {quoted(kept.task.request_id)} any more: it was started anew",
            )

    def _on_served(self, kept: Kept[AnyTask], response: srv.GetResult.Response) -> None:
        """Act on a server that serves a request."""
        self._take_up(kept)

    def _take_up(self, kept: Kept[AnyTask]) -> None:
        """Go on with a request at the present server, or cancel it if its client wanted that."""
        self._forget(kept)
        self._node.take_up(kept.task.request_id)
        if kept.task.canceling:
            self._node.cancel(kept.task.request_id)

    def _waits(self, kept: Kept[AnyTask]) -> bool:
        """Return whether an answer is for a request that is still kept, and not lost once more."""
        return self._kept.get(kept.task.request_id) is kept

    def _forget(self, kept: Kept[AnyTask]) -> None:
        del self._kept[kept.task.request_id]

    def _lose(self, kept: Kept[AnyTask], reason: str) -> None:
        self._forget(kept)
        kept.task.lose(reason)


class PlanTakingUp(TakingUp[PlanTask]):
    """Takes up plans: the next server sends their segments again, and gets their reports again.

    Arguments are those of `TakingUp`.
    """

    def __init__(self, node: RequestNode[Any], result: type[Any], recovery_s: float) -> None:
        super().__init__(node, result, recovery_s)
        self._reports: dict[str, list[ExecutionReport]] = {}

    def report(self, report: ExecutionReport) -> None:
        """Send a report, and remember those of the newest epoch of its plan."""
        sent = self._reports.setdefault(report.request_id, [])
        if sent and sent[-1].epoch != report.epoch:
            sent.clear()
        sent.append(report)
        super().report(report)

    def tick(self, open_ids: Sequence[str]) -> None:
        """Look for a server, and ask it for the plans; see `TakingUp`."""
        for request_id in self._reports.keys() - set(open_ids):
            del self._reports[request_id]
        super().tick(open_ids)

    def _ask(self, kept: Kept[PlanTask]) -> None:
        """Ask the server for the segments of a plan."""
        answer: Future[Any] = Future()
        answer.add_done_callback(lambda future: self._on_segments(kept, future.result()))
        self._node.ask_segments(kept.task.request_id, kept.task.agent, answer)

    def _on_segments(self, kept: Kept[PlanTask], answer: srv.GetSegments.Response) -> None:
        if not self._waits(kept):
            return
        if answer.error_code:  # it has ended, or is not known yet, or is forgotten
            super()._ask(kept)
            return
        self._take_up(kept)
        kept.task.adopt(map(conversions.SEGMENT.read, answer.segments))
        for report in self._reports.get(kept.task.request_id, ()):
            self._node.report(report)

    def _on_served(self, kept: Kept[PlanTask], response: srv.GetResult.Response) -> None:
        """Ask for the segments again: it has been let in since the last question."""
