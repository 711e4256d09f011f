"""Skill sets of a server: from a text to a pre-stored prompt, while requests are served."""

from __future__ import annotations

import contextlib
import pickle
import queue
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import NamedTuple

from timely_llm.core.documents.read import MAX_CHARACTERS
from timely_llm.core.errors import EngineLost, RequestError, SkillSetError
from timely_llm.core.request import ErrorCode, Rejected, unknown_skill_set
from timely_llm.core.text import text_problem
from timely_llm.processes.tied import module_command, module_environment
from timely_llm.serving.limits import RequestGate
from timely_llm.serving.loop import Loop
from timely_llm.serving.prompts import Pieces
from timely_llm.serving.server.inbox import Promises, pass_error, settle
from timely_llm.skills.skill_set import SkillSet

MAX_WAITING = 8
"""Most skill sets that wait to be read."""
SHARE = 0.2
"""Of the engine's time, what registering takes while requests are served."""
Read = Callable[[str, str], SkillSet]
"""Returns the skill set of a text from a source; raises a TimelyError."""
Registered = Future[tuple[str, int]]
"""A skill set's name and the tokens of its shared prompt."""
CHILD = "timely_llm.serving.server.reader_child"
READ_S = 120.0
"""How long reading may take, seconds; on a busy machine its low priority gets little time."""


def read_apart(text: str, source: str = "skill set") -> SkillSet:
    """Return the skill set written in YAML `text`; see `parse_skill_set`.

    A child process reads it, with limits of memory and time: a harmful text affects only the child,
    and PyYAML and the compiler of rules, which hold Python's lock, delay no thread of this process.

    Raises:
        SkillSetError: one line naming the place in `source` and what is allowed there.
    """
    if len(text) > MAX_CHARACTERS:
        raise SkillSetError(
            f"{source} has {len(text)} characters, at most {MAX_CHARACTERS} are allowed"
        )
    problem = text_problem(source, text)
    if problem is not None:
        raise SkillSetError(problem)
    try:
        done = subprocess.run(
            module_command(CHILD),
            input=pickle.dumps((text, source)), capture_output=True, timeout=READ_S, check=False,
            env=module_environment(),
            start_new_session=True,  # Ctrl-C is for this process
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise SkillSetError(
            f"{source} could not be read within {READ_S:g} s: make it simpler, or let the machine"
            " do less meanwhile"
        ) from None
    except OSError as error:
        raise SkillSetError(f"{source} cannot be read: {error.strerror}: try later") from error
    if done.returncode != 0:
        raise SkillSetError(
            f"{source} needs too much time or memory to be read (its reader ended with status"
            f" {done.returncode}): make it simpler"
        )
    answer: SkillSet | str = pickle.loads(done.stdout)
    if isinstance(answer, str):
        raise SkillSetError(answer)
    return answer


class Reading:
    """Reads skill sets one after the other, in a thread of its own."""

    def __init__(self) -> None:
        self._waiting: queue.Queue[Callable[[], None] | None] = queue.Queue(MAX_WAITING)
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._closed: tuple[ErrorCode, str] | None = None

    def close(self, code: ErrorCode, reason: str) -> None:
        """Refuse all skill sets for ever, drop those that wait, and end the thread.

        A skill set that is being read now is read to its end.
        """
        with self._lock:
            self._closed = self._closed or (code, reason)
            with contextlib.suppress(queue.Empty):
                while True:
                    self._waiting.get_nowait()
            self._waiting.put_nowait(None)

    def begin(self, read: Callable[[], SkillSet], done: Callable[[Future[SkillSet]], None]) -> None:
        """Read when it is its turn; `done` is called in the thread, with the outcome.

        Raises:
            Rejected: too many wait already, or it is closed.
        """

        def work() -> None:
            outcome: Future[SkillSet] = Future()
            try:
                outcome.set_result(read())
            except Exception as error:
                outcome.set_exception(error)
            done(outcome)

        with self._lock:
            if self._closed is not None:
                raise Rejected(*self._closed)
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
    """A skill set on its way, and the future of its client."""

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
            future: takes the outcome.
            ready: called when it can be used.
        """

        def pieces() -> Pieces:
            if skill_set.name not in loop.prompts and len(loop.prompts) >= most:
                raise RequestError(
                    f"{most} skill sets are registered, the most allowed: unregister one first"
                )
            return loop.registering(skill_set)

        self._waiting.append(_Registration(skill_set.name, pieces, future, ready))

    def due(self, idle: bool) -> bool:
        """Return whether it is time for a piece.

        Args:
            idle: no request needs the engine now.
        """
        return bool(self._waiting) and (idle or time.monotonic() >= self._next_s)

    def go_on(self) -> None:
        """Do a piece of the first registration.

        Raises:
            EngineLost: the engine has ended.
        """
        began_s = time.monotonic()
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
        except Exception as error:  # the client's future takes it
            settle(self._end(), error=error)
        now = time.monotonic()
        self._next_s = now + (now - began_s) * (1.0 / SHARE - 1.0)

    def _end(self) -> Registered:
        """Take the first registration out; return its client's future."""
        self._pieces = None
        return self._waiting.popleft().future


class SkillSets:
    """The skill sets of a server, as they were written, and those on their way.

    Any thread may use it. `due`, `go_on` and `forget` are for the loop's thread alone.

    Args:
        gate: knows the registered skill sets, and refuses requests for others.
        promises: makes the futures of clients.
        call: runs work on the loop between two steps.
        read: reads the texts of skill sets.
    """

    def __init__(
        self,
        gate: RequestGate,
        promises: Promises,
        call: Callable[[Callable[[Loop], None]], Future[None]],
        read: Read,
    ) -> None:
        self._gate = gate
        self._promises = promises
        self._call = call
        self._read = read
        self._reading = Reading()
        self._registrations = Registrations()
        self._texts: dict[str, str] = {}

    @property
    def names(self) -> list[str]:
        """The names of the registered skill sets, in alphabetical order."""
        return sorted(self._texts)

    def text(self, name: str) -> str:
        """Return a registered skill set as YAML text.

        Raises:
            Rejected: none is registered by this name.
        """
        if name not in self._texts:
            raise unknown_skill_set(name, self._texts)
        return self._texts[name]

    def register(
        self, text: str, source: str = "skill set", read: Read | None = None
    ) -> Registered:
        """Read a skill set in a thread of its own, then pre-store it between steps.

        The future has its name and the tokens of the shared prompt.

        Args:
            text: the skill set as YAML; the first text of a name is kept.
            source: what errors call it.
            read: reads it; None: as for all others.
        """
        future: Registered = self._promises.make()

        def begin(loop: Loop, skill_set: SkillSet) -> None:
            def ready() -> None:
                self._gate.know(skill_set.name)
                self._texts.setdefault(skill_set.name, text)

            most = self._gate.limits.max_skill_sets
            self._registrations.begin(loop, skill_set, most, future, ready)

        def was_read(outcome: Future[SkillSet]) -> None:
            error = outcome.exception()
            if error is not None:
                settle(future, error=error)
                return
            begun = self._call(lambda loop: begin(loop, outcome.result()))
            begun.add_done_callback(lambda done: pass_error(done, future))

        try:
            reads = read or self._read
            self._reading.begin(lambda: reads(text, source), was_read)
        except Rejected as error:
            settle(future, error=error)
        return future

    def close(self, code: ErrorCode, reason: str) -> None:
        """Refuse all skill sets for ever; see `Reading.close`."""
        self._reading.close(code, reason)

    def forget(self, name: str) -> None:
        """Refuse requests for a skill set from now on, and drop its text."""
        self._gate.forget(name)
        self._texts.pop(name, None)

    def due(self, idle: bool) -> bool:
        """Return whether it is time to pre-store a piece.

        Args:
            idle: no request needs the engine now.
        """
        return self._registrations.due(idle)

    def go_on(self) -> None:
        """Pre-store a piece of the first registration.

        Raises:
            EngineLost: the engine has ended.
        """
        self._registrations.go_on()
