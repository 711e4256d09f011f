"""One request of a trace being replayed: when it was asked, and how it ended."""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from typing import Generic, TypeVar

from timely_llm.core.request import Request, Result
from timely_llm.traces.lines import request_line
from timely_llm.traces.model import Conversation, Job

LAST_S = 1.0
"""What is still on its way when the result is there comes in this time, or never: seconds."""
AnyRequest = TypeVar("AnyRequest", bound=Request)
AnyResult = TypeVar("AnyResult", bound=Result)


class ReplayedRequest(ABC, Generic[AnyRequest, AnyResult]):
    """A request as it is asked; times on the monotonic clock.

    Args:
        of_trace: what the trace says of it; due at `arrival_s` after the replay's start.
        request: what is asked.

    Attributes:
        request: what is asked.
        due_s: when it is asked, seconds after the replay's start.
        asked_s: when it was asked.
        result: how the server ended it.
        lost: the server does not know it any more, and did not say how it ended.
    """

    def __init__(self, of_trace: Job | Conversation, request: AnyRequest) -> None:
        self._of_trace = of_trace
        self.request = request
        self.due_s = of_trace.arrival_s
        self.asked_s = math.inf
        self.result: AnyResult | None = None
        self.lost = False

    @property
    def agent(self) -> str:
        """Who asks."""
        return self.request.agent

    @property
    def line(self) -> str:
        """What a trace says of it."""
        return request_line(self._of_trace)

    @property
    @abstractmethod
    def wake_s(self) -> float:
        """When to go on; infinite if that is not known."""

    @property
    @abstractmethod
    def done(self) -> bool:
        """Whether nothing more will happen."""

    @abstractmethod
    def finish(self, result: AnyResult) -> None:
        """Take the result; only the first one counts."""

    @abstractmethod
    def tick(self, now: float) -> None:
        """Go on with what is due."""

    def ask(self) -> None:
        """Take note that it is asked now."""
        self.asked_s = time.monotonic()
