"""The way to one server: over ROS, or to an actor of a cluster."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from timely_llm.core.request import ExecutionReport, PlanRequest, Request, Result, StreamRequest
from timely_llm.core.segment import Segment


@dataclass(frozen=True)
class Found:
    """A request that a server serves, and that a dispatcher of this name has sent.

    Attributes:
        request: as it was sent.
        segments: of its newest epoch, if it is one for a plan.
        text: what was made of the answer, if it is one for an answer.
        tokens: number of tokens of the text.
    """

    request: Request
    segments: Sequence[Segment] = ()
    text: str = ""
    tokens: int = 0

    @property
    def epoch(self) -> int:
        """The newest epoch of a plan; 0 for an answer."""
        if self.segments:
            return self.segments[-1].epoch
        return self.request.epoch if isinstance(self.request, PlanRequest) else 0

    @property
    def first_token(self) -> int:
        """Index of the first token of an answer; 0 for a plan."""
        return self.request.first_token if isinstance(self.request, StreamRequest) else 0


class Link(Protocol):
    """Carries requests to one server.

    No call blocks or raises. Answers come by the given functions, in the thread of the calls. A
    server that is lost gives none. Its segments, tokens, results and views go to the relay.
    """

    def send(self, request: Request) -> None:
        """Send a request."""
        ...

    def report(self, report: ExecutionReport) -> None:
        """Send a robot's report."""
        ...

    def cancel(self, request_id: str) -> None:
        """End a request."""
        ...

    def withdraw(self, request_id: str, stays: Callable[[], None]) -> None:
        """End a request unless it has begun; it then has a result with CANCELED.

        Args:
            request_id: the request's.
            stays: called if it has begun, or is not there.
        """
        ...

    def inquire(self, request_id: str, answered: Callable[[Result | None], None]) -> None:
        """Ask how a request ended; None: the server does not know it."""
        ...

    def find(self, answered: Callable[[Sequence[Found]], None]) -> None:
        """Ask for the requests that a dispatcher of this name has sent."""
        ...

    def skill_set(self, name: str, answered: Callable[[str], None]) -> None:
        """Ask for the YAML text of a registered skill set; empty: there is none."""
        ...

    def register(self, text: str, answered: Callable[[str, int, str], None]) -> None:
        """Register a skill set; the answer is its name, the tokens of its prompt, or an error."""
        ...

    def unregister(self, name: str, answered: Callable[[str], None]) -> None:
        """Forget a skill set; the answer is an error, empty if there is none."""
        ...

    def close(self) -> None:
        """Free what belongs to the link."""
        ...
