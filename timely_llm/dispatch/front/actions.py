"""What a front asks of its caller. All of it is carried out in order, and none of it may fail."""

from __future__ import annotations

from dataclasses import dataclass

from timely_llm.core.request import ExecutionReport, Result, StreamChunk
from timely_llm.core.segment import Segment
from timely_llm.dispatch.contract import Waiting


@dataclass(frozen=True)
class Send:
    """Send a request to a server."""

    waiting: Waiting
    server: str


@dataclass(frozen=True)
class Withdraw:
    """Take a request from a server unless it has begun there.

    The answer is `Front.withdrawn` or `Front.stays`.
    """

    request_id: str
    server: str


@dataclass(frozen=True)
class Cancel:
    """Let a server end a request. What it says of the request later counts only if it has it."""

    request_id: str
    server: str


@dataclass(frozen=True)
class Inquire:
    """Ask a server how a request ended that it does not serve any more.

    The answer is `Front.ended` or `Front.forgotten`.
    """

    request_id: str
    server: str


@dataclass(frozen=True)
class Tell:
    """Send a robot's report to a server."""

    report: ExecutionReport
    server: str


@dataclass(frozen=True)
class Deliver:
    """Pass a segment or a token to its client."""

    what: Segment | StreamChunk


@dataclass(frozen=True)
class Finish:
    """End a request at its client."""

    result: Result


Action = Send | Withdraw | Cancel | Inquire | Tell | Deliver | Finish
