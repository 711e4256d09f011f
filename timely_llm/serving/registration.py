"""Registrations: from a text to a pre-stored prompt, while others are served."""

from __future__ import annotations

import queue
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import NamedTuple

from timely_llm.core.errors import EngineLost, RequestError
from timely_llm.core.request import ErrorCode, Rejected
from timely_llm.serving.loop import Loop
from timely_llm.serving.promises import settle
from timely_llm.serving.prompts import Pieces
from timely_llm.skills.skill_set import SkillSet

MAX_WAITING = 8
"""Most skill sets that wait to be read."""
SHARE = 0.2
"""Of the engine's time, what registering takes while requests are served."""
Read = Callable[[str, str], SkillSet]
"""Returns the skill set of a text from a source; raises a TimelyError."""
Registered = Future[tuple[str, int]]
"""A skill set's name and the tokens of its shared prompt."""


class Reading:
    """Reads skill sets one after the other, in a thread of its own."""

    def __init__(self) -> None:
        self._waiting: queue.Queue[Callable[[], None] | None] = queue.Queue(MAX_WAITING)
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def begin(self, read: Callable[[], SkillSet], done: Callable[[Future[SkillSet]], None]) -> None:
        """Read when it is its turn; `done` is called in the thread, with the outcome.

        Raises:
            Rejected: too many wait already.
        """

        def work() -> None:
            outcome: Future[SkillSet] = Future()
            try:
                outcome.set_result(read())
            except Exception as error:
                outcome.set_exception(error)
            done(outcome)

        with self._lock:
            try:
                self._waiting.put_nowait(work)
            except queue.Full:
                raise Rejected(
                    ErrorCode.QUEUE_FULL,
                    f"{MAX_WAITING} skill sets wait to be registered, the most allowed: try later",
                ) from None
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="reading", daemon=True)
                self._thread.start()

    def _run(self) -> None:
        while (work := self._waiting.get()) is not None:
            work()


class _Registration(NamedTuple):
    """A skill set on its way, and who waits for it."""

    name: str
    pieces: Callable[[], Pieces]
    future: Registered
    ready: Callable[[], None]


class Registrations:
    """Skill sets that were read and are being pre-stored, piece by piece; of the loop's thread.

    A piece holds a step up by the time of `PIECE_TOKENS`. While requests are served, all pieces
    together take no more than `SHARE` of the time.
    """

    def __init__(self) -> None:
        self._waiting: deque[_Registration] = deque()
        self._pieces: Pieces | None = None
        self._next_s = 0.0

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def begin(
        self,
        loop: Loop,
        skill_set: SkillSet,
        most: int,
        future: Registered,
        ready: Callable[[], None],
    ) -> None:
        """Pre-store a skill set when those before it are ready.

        Args:
            loop: where.
            skill_set: what a robot can do.
            most: skill sets that may be registered.
            future: told the outcome.
            ready: called when it can be used.
        """

        def pieces() -> Pieces:
            if skill_set.name not in loop.prompts and len(loop.prompts) >= most:
                raise RequestError(
                    f"{most} skill sets are registered, the most allowed: unregister one first"
                )
            return loop.registering(skill_set)

        self._waiting.append(_Registration(skill_set.name, pieces, future, ready))

    def go_on(self, idle: bool) -> bool:
        """Do a piece, if it is time for one; return whether one was done.

        Args:
            idle: nobody else needs the engine now.

        Raises:
            EngineLost: the engine has ended.
        """
        began_s = time.monotonic()
        if not self._waiting or not (idle or began_s >= self._next_s):
            return False
        registration = self._waiting[0]
        try:
            if self._pieces is None:
                self._pieces = registration.pieces()
            next(self._pieces)
        except StopIteration as done:
            registration.ready()
            settle(self._end(), (registration.name, done.value))
        except EngineLost as error:
            settle(self._end(), error=error)
            raise
        except Exception as error:  # told to who waits for it
            settle(self._end(), error=error)
        now = time.monotonic()
        self._next_s = now + (now - began_s) * (1.0 / SHARE - 1.0)
        return True

    def _end(self) -> Registered:
        """Take the first registration out; return who waits for it."""
        self._pieces = None
        return self._waiting.popleft().future
