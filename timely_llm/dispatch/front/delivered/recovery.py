"""How a request goes on at another server: the words for its rest."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Protocol

from timely_llm.core.errors import RequestError
from timely_llm.core.request import ChatMessage, PlanRequest, Request, StreamRequest
from timely_llm.skills.skill_set import SkillSet

LOST = "its server was lost"
"""Why a request goes on at another server."""

GO_ON = "Go on exactly where you stopped."
"""The message that asks for the rest of an answer."""


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


class Words:
    """Words the rest of requests: plans as their skill sets do, answers with the text so far.

    Args:
        skill_set: returns a registered skill set by its name.
    """

    def __init__(self, skill_set: Callable[[str], SkillSet]) -> None:
        self._skill_set = skill_set

    def task(self, request: PlanRequest, plan: str, reason: str, done: str) -> str:
        """Return the task that asks for the rest of a plan; see `Recovery`."""
        return self._skill_set(request.skill_set).recovery_text(request.task, plan, reason, done)

    def value(self, request: PlanRequest, value: str) -> str:
        """Return what a plan's text says of the value that its last blocking call returned."""
        return self._skill_set(request.skill_set).answer_text(value)

    def answer(self, request: StreamRequest, text: str, tokens: int) -> StreamRequest:
        """Return the request for the rest of an answer.

        Raises:
            RequestError: it is too long.
        """
        said: tuple[ChatMessage, ...] = ()
        if text.strip():
            said = (ChatMessage("assistant", text), ChatMessage("user", GO_ON))
        left = max(request.max_tokens - tokens, 1)
        return replace(request, messages=(*request.messages, *said), max_tokens=left)


def asked_first(request: Request) -> tuple[Request, str]:
    """Return a request as it was asked first, and the text that was delivered since.

    It undoes `Words.answer`. A request in other words is returned as it is.
    """
    if not isinstance(request, StreamRequest) or not request.first_token:
        return request, ""
    said = request.messages[-2:]
    if [one.role for one in said] != ["assistant", "user"] or said[1].content != GO_ON:
        return request, ""
    tokens = request.max_tokens + request.first_token
    try:
        first = replace(request, messages=request.messages[:-2], max_tokens=tokens, first_token=0)
    except RequestError:  # no dispatcher has sent it
        return request, ""
    return first, said[0].content
