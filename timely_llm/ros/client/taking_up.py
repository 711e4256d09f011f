"""Plans that outlive their server: a client keeps them until the next server knows them."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from timely_llm import srv
from timely_llm.core.errors import ConfigurationError
from timely_llm.core.request import ExecutionReport, PlanResult
from timely_llm.core.text import quoted
from timely_llm.robots.client.plan_task import PlanTask
from timely_llm.ros import conversions
from timely_llm.ros.client.node import ClientNode

AGAIN_S = 0.5
"""Period of questions for a plan, seconds."""
PATIENCE_S = 2.0
"""Longest time that a question is on its way, seconds."""
TAKEN_S = 8.0
"""Time in which a new dispatcher finds what its servers have, seconds."""


@dataclass
class _Kept:
    """A plan without a server.

    Attributes:
        task: the plan.
        reason: why the last server is lost.
        end_s: until when a server is looked for.
        found_s: since when there is a server.
        asked_s: when it was last asked.
        answered: it answered the last question.
    """

    task: PlanTask
    reason: str
    end_s: float
    found_s: float = math.inf
    asked_s: float = -math.inf
    answered: bool = True


class TakingUp:
    """Keeps open plans while there is no server, and takes them up at the next one.

    That one sends the segments again, and gets the reports again. For the client's thread.

    Args:
        node: the client's.
        recovery_s: longest time without a server, seconds; 0: a plan is lost with its server.
    """

    def __init__(self, node: ClientNode, recovery_s: float) -> None:
        self._node = node
        self._recovery_s = recovery_s
        self._kept: dict[str, _Kept] = {}
        self._reports: dict[str, list[ExecutionReport]] = {}

    def report(self, report: ExecutionReport) -> None:
        """Send a report, and remember those of the newest epoch of its plan."""
        sent = self._reports.setdefault(report.request_id, [])
        if sent and sent[-1].epoch != report.epoch:
            sent.clear()
        sent.append(report)
        self._node.report(report)

    def keep(self, tasks: Sequence[PlanTask], reason: str) -> None:
        """Keep plans, or lose them if their server does not resume requests.

        Args:
            tasks: the open plans.
            reason: why the server is lost.
        """
        resumes = self._node.watch.resumes and self._recovery_s > 0
        for task in tasks:
            if resumes:
                self._node.inquiries.close(task.request_id)
                end_s = time.monotonic() + self._recovery_s
                self._kept[task.request_id] = _Kept(task, reason, end_s)
            else:
                task.lose(reason)

    def tick(self, open_ids: Sequence[str]) -> None:
        """Look for a server, and ask it for the plans.

        Args:
            open_ids: ids of the open plans.
        """
        for request_id in self._reports.keys() - set(open_ids):
            del self._reports[request_id]
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
        for kept in list(self._kept.values()) if found else ():
            self._ask(kept)

    def _ask(self, kept: _Kept) -> None:
        now = time.monotonic()
        if now < kept.asked_s + (AGAIN_S if kept.answered else PATIENCE_S):
            return
        answer: Future[Any] = Future()
        asked = self._node.ask_segments(kept.task.request_id, kept.task.agent, answer)
        if asked:
            kept.asked_s, kept.answered, kept.found_s = now, False, min(kept.found_s, now)
            answer.add_done_callback(lambda future: self._on_segments(kept, future.result()))

    def _on_segments(self, kept: _Kept, answer: srv.GetSegments.Response) -> None:
        if not self._waits(kept):
            return
        if answer.error_code:  # it has ended, or is not known yet, or is forgotten
            self._node.ask_result(
                kept.task.request_id, lambda response: self._on_result(kept, response)
            )
            return
        self._forget(kept)
        self._node.take_up(kept.task.request_id)
        kept.task.adopt(map(conversions.SEGMENT.read, answer.segments))
        for report in self._reports.get(kept.task.request_id, ()):
            self._node.report(report)

    def _on_result(self, kept: _Kept, response: srv.GetResult.Response) -> None:
        if not self._waits(kept):
            return
        kept.answered = True
        result = conversions.result_in(response)
        if isinstance(result, PlanResult) and result.agent == kept.task.agent:
            self._forget(kept)
            kept.task.finish(result)
        elif response.state == response.UNKNOWN and (
            not self._node.watch.resumes or time.monotonic() > kept.found_s + TAKEN_S
        ):
            self._lose(
                kept,
                f"the server {self._node.server} does not know the request"
                f" {quoted(kept.task.request_id)} any more: it was started anew",
            )

    def _waits(self, kept: _Kept) -> bool:
        """Return whether an answer is for a plan that is still kept, and not lost once more."""
        return self._kept.get(kept.task.request_id) is kept

    def _forget(self, kept: _Kept) -> None:
        del self._kept[kept.task.request_id]

    def _lose(self, kept: _Kept, reason: str) -> None:
        self._forget(kept)
        kept.task.lose(reason)
