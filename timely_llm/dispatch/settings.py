"""How a dispatcher serves."""

from __future__ import annotations

from dataclasses import dataclass

from timely_llm.serving.limits import RequestLimits

NO_SERVER = (
    "no plan server has joined this dispatcher: start one; the dispatcher's log names those that it"
    " leaves out"
)
"""What clients of a dispatcher without servers read."""


@dataclass(frozen=True)
class DispatchSettings:
    """How a relay serves.

    Attributes:
        name: full name of the dispatcher; servers know its requests by it.
        limits: when to refuse requests.
        max_conversations: most conversations that are remembered.
        queue_timeout_s: a request without a server for this time is ended, seconds.
        silence_s: a server without a view for this time is lost, seconds.
        moves: requests that have not begun may move to another server.
        hedge: urgent plans are asked of two servers.
        none_there: what clients read when there is no server.
    """

    name: str
    limits: RequestLimits
    max_conversations: int = 256
    queue_timeout_s: float = 120.0
    silence_s: float = 10.0
    moves: bool = True
    hedge: bool = False
    none_there: str = NO_SERVER
