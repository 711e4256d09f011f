"""A client of a cloud that waits for its answers."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any

from timely_llm.cloud.contract import CloudEnd, CloudEvent, CloudQuestion, CloudWords
from timely_llm.cloud.openai import OpenAiCloud
from timely_llm.cloud.settings import CloudSettings
from timely_llm.core.clock import WallClock
from timely_llm.core.request import ChatMessage

BOUND_S = 60.0
"""Longest wait for an event, seconds."""


def question(key: str = "q", timeout_s: float = 30.0, max_tokens: int = 32) -> CloudQuestion:
    return CloudQuestion(key, (ChatMessage("user", "Why?"),), max_tokens, timeout_s)


class Asking:
    """A cloud with its events; the settings are patient unless they are given."""

    def __init__(self, url: str, **more: Any) -> None:
        patient = {"timeout_s": 30.0, "first_token_s": 30.0, "silence_s": 30.0, "connect_s": 10.0}
        self._woken = threading.Event()
        self._clock = WallClock()
        self.events: list[CloudEvent] = []
        settings = CloudSettings(url, **{"model": "large", **patient, **more})
        self.cloud = OpenAiCloud(settings, self._woken.set, self._clock)

    def ask(self, asked: CloudQuestion) -> None:
        self.cloud.ask(asked, self._clock.now())

    def wait(self, enough: Callable[[], bool]) -> None:
        """Take events until there are enough."""
        while not enough():
            assert self._woken.wait(BOUND_S), self.events
            self._woken.clear()
            self.events += self.cloud.poll(self._clock.now())

    def answer(self, asked: CloudQuestion | None = None) -> tuple[str, CloudEnd]:
        """Return the words of an answer, and its end."""
        asked = asked or question()
        self.ask(asked)
        self.wait(lambda: asked.key in {end.key for end in self.ends})
        said = [e.text for e in self.events if isinstance(e, CloudWords) and e.key == asked.key]
        [end] = [end for end in self.ends if end.key == asked.key]
        self.events = [event for event in self.events if event.key != asked.key]
        return "".join(said), end

    @property
    def ends(self) -> list[CloudEnd]:
        return [event for event in self.events if isinstance(event, CloudEnd)]

    def __enter__(self) -> Asking:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.cloud.close()
