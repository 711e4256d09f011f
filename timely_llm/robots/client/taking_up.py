"""Taking up: what a client does with its open requests when their server is gone. Pure logic."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from timely_llm.core.errors import ConfigurationError
from timely_llm.core.request import ExecutionReport, Result
from timely_llm.core.segment import Segment
from timely_llm.core.text import quoted

AGAIN_S = 0.5
"""Period of questions for a request, seconds."""
PATIENCE_S = 2.0
"""Longest time that a question is on its way, seconds."""
TAKEN_S = 8.0
"""Time in which a new dispatcher finds what its servers have, seconds."""


class OpenRequest(Protocol):
    """A request that is open until its result comes; as `Pending`."""

    @property
    def request_id(self) -> str:
        """Its id."""
        ...

    @property
    def agent(self) -> str:
        """The robot or person of the request."""
        ...

    @property
    def done(self) -> bool:
        """Whether it has a result, or never will."""
        ...

    @property
    def canceling(self) -> bool:
        """Whether its client wants it to end."""
        ...

    def finish(self, result: Any) -> None:
        """Take the result."""
        ...

    def lose(self, reason: str) -> None:
        """End: no result will come."""
        ...


class OpenPlanRequest(OpenRequest, Protocol):
    """An open plan."""

    def adopt(self, segments: Sequence[Segment]) -> None:
        """Take the segments of the newest epoch."""
        ...


class OpenAnswerRequest(OpenRequest, Protocol):
    """An open answer."""

    def adopt(self, text: str, tokens: int) -> None:
        """Take all of the text that was made so far, and the number of its tokens."""
        ...


KeptRequest = TypeVar("KeptRequest", bound=OpenRequest)


@dataclass(frozen=True)
class RequestFate:
    """What a server says of a request.

    Attributes:
        served: it is being served.
        result: how it ended; None: it is served, or not known.
        text: made so far of an answer that is served.
        tokens: of that text.
    """

    served: bool = False
    result: Result | None = None
    text: str = ""
    tokens: int = 0


class AskedServer(Protocol):
    """The way of a client to its server, and to the next one."""

    @property
    def name(self) -> str:
        """The server's name."""
        ...

    @property
    def resumes(self) -> bool:
        """Whether requests that are open at its end go on at the next server."""
        ...

    def find(self) -> bool:
        """Go on looking for a server; return whether it is found.

        Raises:
            ConfigurationError: the server has another interface.
        """
        ...

    def stop_asking(self, request_id: str) -> None:
        """End other questions about a request."""
        ...

    def ask_segments(
        self, request_id: str, agent: str, answered: Callable[[Sequence[Segment] | None], None]
    ) -> None:
        """Ask for the segments of a plan; the answer None: it is not being served."""
        ...

    def ask_result(self, request_id: str, answered: Callable[[RequestFate], None]) -> None:
        """Ask what became of a request."""
        ...

    def take_up(self, request_id: str) -> None:
        """Take the result of a request whenever it comes."""
        ...

    def cancel(self, request_id: str) -> None:
        """End a request."""
        ...

    def report(self, report: ExecutionReport) -> None:
        """Send a report."""
        ...


@dataclass
class Kept(Generic[KeptRequest]):
    """A request without a server.

    Attributes:
        task: the request.
        reason: why the last server is lost.
        end_s: until when a server is looked for.
        found_s: since when there is a server.
        asked_s: when it was last asked.
        answered: it answered the last question.
    """

    task: KeptRequest
    reason: str
    end_s: float
    found_s: float = math.inf
    asked_s: float = -math.inf
    answered: bool = True


class TakingUp(Generic[KeptRequest]):
    """Keeps open requests while there is no server, and takes them up at the next one.

    That one sends what it makes from then on, and the result. For one thread.

    Args:
        server: the client's way to it.
        result: class of the requests' results.
        recovery_s: longest time without a server, seconds; 0: a request is lost with its server.
        seconds: returns the time, seconds.
    """

    def __init__(
        self,
        server: AskedServer,
        result: type[Any],
        recovery_s: float,
        seconds: Callable[[], float] = time.monotonic,
    ) -> None:
        self._server = server
        self._result = result
        self._recovery_s = recovery_s
        self._seconds = seconds
        self._kept: dict[str, Kept[KeptRequest]] = {}

    @property
    def waits(self) -> bool:
        """Whether a request is without a server: `tick` has something to do."""
        return bool(self._kept)

    def report(self, report: ExecutionReport) -> None:
        """Send a report."""
        self._server.report(report)

    def keep(self, tasks: Sequence[KeptRequest], reason: str) -> None:
        """Keep requests, or lose them if their server does not resume requests.

        Args:
            tasks: the open requests.
            reason: why the server is lost.
        """
        resumes = self._server.resumes and self._recovery_s > 0
        for task in tasks:
            if resumes:
                self._server.stop_asking(task.request_id)
                end_s = self._seconds() + self._recovery_s
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
            elif self._seconds() >= kept.end_s and kept.found_s == math.inf:
                self._lose(kept, kept.reason)
        if not self._kept:
            return
        try:
            found = self._server.find()
        except ConfigurationError as error:
            for kept in list(self._kept.values()):
                self._lose(kept, str(error))
            return
        now = self._seconds()
        for kept in list(self._kept.values()) if found else ():
            if now >= kept.asked_s + (AGAIN_S if kept.answered else PATIENCE_S):
                kept.asked_s, kept.answered, kept.found_s = now, False, min(kept.found_s, now)
                self._ask(kept)

    def _ask(self, kept: Kept[KeptRequest]) -> None:
        """Ask the server for a request."""
        self._server.ask_result(kept.task.request_id, lambda fate: self._on_fate(kept, fate))

    def _on_fate(self, kept: Kept[KeptRequest], fate: RequestFate) -> None:
        if not self._waits(kept):
            return
        kept.answered = True
        result = fate.result
        if isinstance(result, self._result) and result.agent == kept.task.agent:
            self._forget(kept)
            kept.task.finish(result)
        elif fate.served:
            self._on_served(kept, fate)
        elif result is None and (
            not self._server.resumes or self._seconds() > kept.found_s + TAKEN_S
        ):
            self._lose(
                kept,
                f"the server {self._server.name} does not know the request"
                f" {quoted(kept.task.request_id)} any more: it was started anew",
            )

    def _on_served(self, kept: Kept[KeptRequest], fate: RequestFate) -> None:
        """Act on a server that serves a request."""
        self._take_up(kept)

    def _take_up(self, kept: Kept[KeptRequest]) -> None:
        """Go on with a request at the present server, or cancel it if its client wanted that."""
        self._forget(kept)
        self._server.take_up(kept.task.request_id)
        if kept.task.canceling:
            self._server.cancel(kept.task.request_id)

    def _waits(self, kept: Kept[KeptRequest]) -> bool:
        """Return whether an answer is for a request that is still kept, and not lost once more."""
        return self._kept.get(kept.task.request_id) is kept

    def _forget(self, kept: Kept[KeptRequest]) -> None:
        del self._kept[kept.task.request_id]

    def _lose(self, kept: Kept[KeptRequest], reason: str) -> None:
        self._forget(kept)
        kept.task.lose(reason)


Plan = TypeVar("Plan", bound=OpenPlanRequest)
AnAnswer = TypeVar("AnAnswer", bound=OpenAnswerRequest)


class PlanTakingUp(TakingUp[Plan]):
    """Takes up plans: the next server sends their segments again, and gets their reports again.

    Arguments are those of `TakingUp`.
    """

    def __init__(
        self,
        server: AskedServer,
        result: type[Any],
        recovery_s: float,
        seconds: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(server, result, recovery_s, seconds)
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

    def _ask(self, kept: Kept[Plan]) -> None:
        """Ask the server for the segments of a plan."""
        self._server.ask_segments(
            kept.task.request_id, kept.task.agent, lambda found: self._on_segments(kept, found)
        )

    def _on_segments(self, kept: Kept[Plan], segments: Sequence[Segment] | None) -> None:
        if not self._waits(kept):
            return
        if segments is None:  # it has ended, or is not known yet, or is forgotten
            super()._ask(kept)
            return
        self._take_up(kept)
        kept.task.adopt(segments)
        for report in self._reports.get(kept.task.request_id, ()):
            self._server.report(report)

    def _on_served(self, kept: Kept[Plan], fate: RequestFate) -> None:
        """Ask for the segments again: it has been let in since the last question."""


class AnswerTakingUp(TakingUp[AnAnswer]):
    """Takes up answers: the next server has what a client has missed."""

    def _on_served(self, kept: Kept[AnAnswer], fate: RequestFate) -> None:
        self._take_up(kept)
        kept.task.adopt(fate.text, fate.tokens)
