"""A cloud behind an OpenAI-compatible HTTP interface, asked from a thread of its own."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import socket
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from timely_llm.cloud.chat_completions import ChatCompletions
from timely_llm.cloud.chunk import Usage
from timely_llm.cloud.contract import CloudEnd, CloudEvent, CloudQuestion, CloudWords
from timely_llm.cloud.settings import CloudSettings
from timely_llm.core.clock import Clock, WallClock
from timely_llm.core.text import count_of, sentence

log = logging.getLogger(__name__)
CLOSE_S = 0.5
"""How long connections may take to close, and then their thread to end, seconds."""


class _Asked:
    """A question that was asked; another one may have its key later."""

    def __init__(self, question: CloudQuestion) -> None:
        self.question = question
        self.task: asyncio.Task[None] | None = None


class OpenAiCloud:
    """Asks one cloud; see `Cloud`. All connections belong to one thread, and one event loop in it.

    Args:
        settings: where the cloud is, and its bounds.
        wake: called from another thread, and from `ask`, when `poll` has something new; short.
        clock: stamps what arrives.

    Raises:
        ConfigurationError: the key's variable is not set, or the URL is none.
    """

    def __init__(
        self, settings: CloudSettings, wake: Callable[[], object], clock: Clock | None = None
    ) -> None:
        self._settings = settings
        self._wake = wake
        self._clock = clock or WallClock()
        self._completions = ChatCompletions(settings)
        self._open: dict[str, _Asked] = {}
        self._arrived: deque[tuple[_Asked, CloudEvent]] = deque()
        self._loop = ResolvingLoop()
        self._closing = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="cloud", daemon=True)
        self._thread.start()

    def ask(self, question: CloudQuestion, now: float) -> None:
        """Begin a question; see `Cloud.ask`.

        Raises:
            ValueError: one with its key is open.
        """
        if question.key in self._open:
            raise ValueError(f"a question {question.key!r} is open already")
        problem = self._problem()
        asked = self._open[question.key] = _Asked(question)
        if problem:
            self._arrive(asked, CloudEnd(question.key, now, error=problem))
        else:
            self._loop.call_soon_threadsafe(self._begin, asked)

    def poll(self, now: float) -> Sequence[CloudEvent]:
        """Return what arrived since the last call; see `Cloud.poll`."""
        events = []
        while self._arrived:
            asked, event = self._arrived.popleft()
            if self._open.get(event.key) is asked:
                events.append(event)
                if isinstance(event, CloudEnd):
                    del self._open[event.key]
        return events

    def cancel(self, key: str) -> None:
        """Give a question up and close its connection; see `Cloud.cancel`."""
        asked = self._open.pop(key, None)
        if asked is not None and not self._closed:
            self._loop.call_soon_threadsafe(self._give_up, asked)

    def next_s(self) -> float:
        """Return infinity: `wake` is called instead."""
        return math.inf

    def close(self) -> None:
        """Give all questions up, close all connections and end the thread."""
        self._open.clear()
        if not self._closed:
            self._closed = True
            self._loop.call_soon_threadsafe(self._closing.set)
        self._thread.join(2 * CLOSE_S)

    def _problem(self) -> str:
        """Return why a question cannot be asked; empty: it can."""
        if self._closed:
            return f"the client of the cloud at {self._settings.host} is closed"
        if len(self._open) >= (most := self._settings.max_questions):
            questions = count_of(most, "question is", "questions are")
            return f"{questions} open at the cloud, which is the most that cloud_max_questions lets"
        return ""

    # In the cloud's thread.

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._live())

    async def _live(self) -> None:
        await self._closing.wait()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=CLOSE_S / 2)
        try:
            await asyncio.wait_for(self._completions.close(), CLOSE_S / 2)
        except Exception as error:  # the connections go with the thread
            log.debug("a connection did not close: %s", error)

    def _begin(self, asked: _Asked) -> None:
        asked.task = self._loop.create_task(self._answer(asked))
        self._tasks.add(asked.task)
        asked.task.add_done_callback(self._tasks.discard)

    def _give_up(self, asked: _Asked) -> None:
        if asked.task is not None:
            asked.task.cancel()

    async def _answer(self, asked: _Asked) -> None:
        """Ask a question; whatever happens, it has one end."""
        key = asked.question.key

        def hear(text: str) -> None:
            self._arrive(asked, CloudWords(key, text, self._clock.now()))

        usage = Usage()
        try:
            usage, problem = await self._completions.ask(asked.question, hear)
        except Exception as error:
            log.debug("a question to the cloud failed", exc_info=True)
            problem = f"the question cannot be sent to the cloud: {error}"
        counts = usage.prompt_tokens, usage.completion_tokens
        self._arrive(asked, CloudEnd(key, self._clock.now(), *counts, sentence(problem)))

    def _arrive(self, asked: _Asked, event: CloudEvent) -> None:
        self._arrived.append((asked, event))
        try:
            self._wake()
        except Exception:
            log.exception("a wake-up by the cloud failed")


class ResolvingLoop(asyncio.SelectorEventLoop):
    """Resolves a name in a daemon thread; questions about the same name share it.

    The thread pool of asyncio keeps a process from ending until a resolver has given up, which
    takes up to a minute. A thread for each connection would let threads pile up meanwhile.
    """

    def __init__(self) -> None:
        super().__init__()
        self._resolving: dict[tuple[Any, ...], asyncio.Future[Any]] = {}

    async def getaddrinfo(self, host: Any, port: Any, **options: Any) -> Any:
        """Return what `socket.getaddrinfo` returns; see there."""
        key = (host, port, *sorted(options.items()))
        future = self._resolving.get(key)
        if future is None:
            future = self._resolving[key] = self.create_future()
            future.add_done_callback(lambda done: self._resolving.pop(key, None))
            threading.Thread(
                target=self._resolve, args=(future, host, port, options), name="resolver",
                daemon=True,
            ).start()  # fmt: skip
        return await asyncio.shield(future)

    def _resolve(
        self, future: asyncio.Future[Any], host: Any, port: Any, options: dict[str, Any]
    ) -> None:
        found: Any = None
        problem: Exception | None = None
        try:
            found = socket.getaddrinfo(host, port, **options)
        except Exception as error:
            problem = error

        def settle() -> None:
            if future.done():
                return
            if problem is None:
                future.set_result(found)
            else:
                future.set_exception(problem)
                future.exception()  # it is known, even if no question waits for it any more

        with contextlib.suppress(RuntimeError):  # the loop was closed meanwhile
            self.call_soon_threadsafe(settle)
