"""What clients' requests need of a server: one with an engine, or several behind a dispatcher."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Protocol

from timely_llm.core.generation import Generation, PlanGeneration, State, StreamGeneration
from timely_llm.core.request import ExecutionReport, Request, Result
from timely_llm.core.segment import Segment


@dataclass(frozen=True)
class RequestStatus:
    """The state of a request that is being served.

    Attributes:
        plan: it is a request for a plan, not for an answer.
        state: where it is between arrival and end.
        delivered: segments delivered, or tokens of an answer.
        due_in_s: seconds until the next segment or token is needed; of a plan, in its robot's time.
    """

    request_id: str
    agent: str
    plan: bool
    state: State
    delivered: int
    due_in_s: float


@dataclass(frozen=True)
class RunningRequest:
    """A request that is being served.

    Attributes:
        request: as it was sent.
        made: tokens of an answer so far; 0 for a plan.
        text: of these tokens; empty for a plan.
    """

    request: Request
    made: int = 0
    text: str = ""


def running(requests: Iterable[Request], generations: Iterable[Generation]) -> list[RunningRequest]:
    """Return requests with what was made of them.

    Args:
        requests: as they were sent, in order.
        generations: being served; a request without one has nothing yet.
    """
    answers = {one.key: one for one in generations if isinstance(one, StreamGeneration)}
    found = []
    for request in requests:
        answer = answers.get(request.request_id)
        if answer is None:
            found.append(RunningRequest(request))
        else:
            text = "".join(answer.pieces)
            found.append(RunningRequest(request, len(answer.token_ids), text))
    return found


def statuses_of(generations: Iterable[Generation], now: float) -> list[RequestStatus]:
    """Return the states of requests at `now`, seconds on the loop's clock."""
    return [_status(one, now) for one in generations if one.state is not State.ENDED]


def _status(one: Generation, now: float) -> RequestStatus:
    plan = isinstance(one, PlanGeneration)
    delivered = len(one.segments) if isinstance(one, PlanGeneration) else len(one.token_ids)
    rate = one.rate if isinstance(one, PlanGeneration) else 1.0
    due_in_s = rate * (one.due_s - now)
    return RequestStatus(one.key, one.request.agent, plan, one.state, delivered, due_in_s)


class SkillSetStore(Protocol):
    """The registered skill sets of a server, as they were written."""

    @property
    def names(self) -> list[str]:
        """The names of the registered skill sets, in alphabetical order."""
        ...

    def text(self, name: str) -> str:
        """Return a registered skill set as YAML text.

        Raises:
            Rejected: none is registered by this name.
        """
        ...

    def register(self, text: str) -> Future[tuple[str, int]]:
        """Register a skill set; the future has its name and the tokens of its shared prompt."""
        ...


class RequestServer(Protocol):
    """Takes requests and reports; what comes of them goes to a sink.

    No call blocks. A future that raises has a `TimelyError`; its sentence is for the client.
    """

    @property
    def skill_sets(self) -> SkillSetStore:
        """The registered skill sets."""
        ...

    @property
    def serving(self) -> int:
        """How many requests are being served."""
        ...

    def submit(self, request: Request) -> None:
        """Accept a request.

        Raises:
            Rejected: the server does not take it, and why.
        """
        ...

    def report(self, report: ExecutionReport) -> None:
        """Take a robot's word about a segment."""
        ...

    def cancel(self, request_id: str, *, unless_begun: bool = False) -> Future[bool]:
        """End a request; the future says whether it was there.

        Args:
            request_id: the request.
            unless_begun: only if it had no step yet; else the future raises a `RequestError`.
        """
        ...

    def serves(self, request_id: str) -> bool:
        """Return whether a request was let in and has not ended."""
        ...

    def requests_of(self, dispatcher: str) -> Future[list[RunningRequest]]:
        """Return the requests that a dispatcher sent and that are served, in order of arrival.

        Args:
            dispatcher: its full name; empty: no dispatcher has it, and there are no requests.
        """
        ...

    def so_far(self, request_id: str) -> Future[RunningRequest | None]:
        """Return a request that is being served, with what was made of it; None: it is not."""
        ...

    def result(self, request_id: str) -> Future[Result | None]:
        """Return how a request ended of which the sink got no end; None: that is not known."""
        ...

    def unregister(self, name: str) -> Future[None]:
        """Forget a skill set that no request uses; the future says why it cannot be."""
        ...

    def statuses(self) -> Future[list[RequestStatus]]:
        """Return the states of the requests being served, in order of arrival."""
        ...

    def segments(self, agent: str, request_id: str = "") -> Future[list[Segment]]:
        """Return delivered segments of plans being served; see `results.segments_of`."""
        ...
