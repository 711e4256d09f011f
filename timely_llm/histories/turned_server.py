"""The real server without its thread: the caller turns it."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

from timely_llm.core.clock import Clock
from timely_llm.core.events.log import EventLog
from timely_llm.serving.journal.sink import JournalSink
from timely_llm.serving.limits import RequestLimits
from timely_llm.serving.loop import Loop
from timely_llm.serving.publisher import EventPublisher
from timely_llm.serving.server.inbox import Inbox, InboxItem
from timely_llm.serving.server.server import Server
from timely_llm.serving.sink import ServerSink
from timely_llm.skills.skill_set import SkillSet

T = TypeVar("T")


class _Pause(BaseException):
    """Ends a turn where the server's thread would wait, or begin its next turn."""

    def __init__(self, seconds: float, rests: bool = False) -> None:
        super().__init__()
        self.seconds = seconds
        self.rests = rests


class _TurnedInbox(Inbox):
    """An inbox that ends a turn instead of waiting."""

    def __init__(self) -> None:
        super().__init__()
        self.taken = False

    def take(self) -> list[InboxItem]:
        """Take out all that is there; the second time in a turn ends it."""
        if self.taken:
            raise _Pause(0.0)
        self.taken = True
        return super().take()

    def wait(self, seconds: float) -> None:
        """End the turn."""
        raise _Pause(max(seconds, 0.0))

    def rest(self, seconds: float) -> None:
        """End the turn."""
        raise _Pause(seconds, rests=True)


class TurnedServer(Server):
    """A server that works in `turn`, in the caller's thread.

    Args:
        make_loop: makes the loop.
        sink: takes requests, segments and results.
        clock: the loop's clock.
        limits: when to refuse requests.
        skill_set: registered from the beginning.
        text: the skill set as YAML.
        event_log: takes the events; None: there is none.

    Attributes:
        rests: the last turn asked for a pause that no message ends.
        over: it serves nothing any more, and all that it had has ended.
    """

    def __init__(
        self, make_loop: Callable[[], Loop], sink: ServerSink, clock: Clock,
        limits: RequestLimits, skill_set: SkillSet, text: str, event_log: EventLog | None = None,
    ) -> None:  # fmt: skip
        super().__init__(make_loop, sink, clock, limits)
        self._thread.join()
        self._turned_inbox = _TurnedInbox()
        self._inbox = self._turned_inbox
        self.loop = make_loop()
        self.loop.register(skill_set)
        self.loop.take_events()
        self._publisher = EventPublisher(self.loop, self._active_sink, event_log)
        self._made.set_result(self.loop)
        self._gate.know(skill_set.name)
        self.skill_sets._texts[skill_set.name] = text
        self.rests = self.over = False
        self._resumes = False

    def _run(self, make_loop: Callable[[], Loop]) -> None:
        """End the server's own thread, which has nothing to do."""
        self._over.set()

    def resume(self, journal: JournalSink) -> None:
        """Go on with the requests of a journal."""
        self._resumes = True
        try:
            journal.attach(self, self._clock.now())
        finally:
            self._resumes = False

    def call(self, work: Callable[[Loop], T], slow: bool = False) -> Future[T]:
        """Run `work` between two steps; at once while a journal is read, which waits for it."""
        future = super().call(work, slow)
        if self._resumes:
            for item in Inbox.take(self._turned_inbox):
                item.do()
        return future

    @property
    def request_ids(self) -> set[str]:
        """The ids of the requests that were let in and have not left."""
        return {request.request_id for request in self._gate.requests}

    @property
    def failed(self) -> bool:
        """Whether the loop, or work for it, has failed: requests may have ended without it."""
        return bool(self._failures.last or self._work_failures.last)

    def turn(self) -> float:
        """Do what the server's thread does between two looks into its inbox.

        Returns:
            Seconds until the next turn at the latest.
        """
        self._turned_inbox.taken = False
        self.rests = False
        try:
            self._serve(self.loop)
        except _Pause as pause:
            self.rests = pause.rests
            return pause.seconds
        self._end_all(self.loop, *self._why)
        self._publish_ends()
        self.loop.close()
        self.over = True
        return 0.0

    def hang(self, seconds: float) -> None:
        """Let the watchdog find that the engine hangs, in the middle of a turn."""
        self._thread_hangs(seconds)
