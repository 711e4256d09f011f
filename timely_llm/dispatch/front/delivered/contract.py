"""How the rest of a request is worded."""

from __future__ import annotations

from typing import Protocol

from timely_llm.core.request import PlanRequest, StreamRequest

LOST = "its server was lost"
"""Why a request goes on at another server."""


class Recovery(Protocol):
    """Words requests that go on after their server was lost."""

    def task(self, request: PlanRequest, plan: str, reason: str, done: str) -> str:
        """Return the task that asks for the rest of a plan.

        Args:
            request: as it was asked first.
            plan: the text of what was delivered of the newest epoch.
            reason: why it does not go on.
            done: the text of what was executed.
        """
        ...

    def value(self, request: PlanRequest, value: str) -> str:
        """Return what a plan's text says of the value that its last blocking call returned."""
        ...

    def answer(self, request: StreamRequest, text: str, tokens: int) -> StreamRequest:
        """Return the request for the rest of an answer.

        Args:
            request: as it was asked first.
            text: what was delivered.
            tokens: number of tokens that were delivered.
        """
        ...
