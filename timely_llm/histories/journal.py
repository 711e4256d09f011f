"""The recovery journal of a server in a history: a real file on a disk that may fail."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path

from timely_llm.core.events.run_event import RunEvent
from timely_llm.core.events.schema import ReplanEvent, ReportEvent
from timely_llm.core.request import Request
from timely_llm.core.segment import Segment
from timely_llm.histories.checks import ensure
from timely_llm.serving.journal.file import JournalFile
from timely_llm.serving.journal.saved import SavedRequest

SLOWEST_S = 2.0
"""Longest time of a record on a slow disk, seconds."""

_Append = Callable[[bytes], int]
_Fault = Callable[[_Append, bytes], int]


class Killed(BaseException):
    """The process ends in the middle of its work."""


class _FailingFile(JournalFile):
    """A journal on a disk that fails when it is asked to.

    Args:
        path: the file.
        release: writes it.
        wall_s: returns the time of day, seconds.
        written: called when all records are written.

    Attributes:
        faults: each hits one of the next writes: it gets the append, and the records.
        failed: a record was not written, and the journal has ended.
        killed: the process has ended: nothing is written any more.
    """

    def __init__(
        self, path: Path, release: str, wall_s: Callable[[], float], written: Callable[[], None]
    ) -> None:
        self.faults: list[_Fault] = []
        self.failed = self.killed = False
        self._written = written
        super().__init__(path, release, wall_s=wall_s)

    def _write_waiting(self) -> None:
        super()._write_waiting()
        self._written()

    def _append(self, line: bytes) -> int:
        if self.killed:
            raise Killed
        if self.faults:
            return self.faults.pop(0)(super()._append, line)
        return super()._append(line)

    def _fail(self, error: OSError) -> None:
        self.failed = True
        super()._fail(error)


@dataclass
class _Issued:
    """What a server has published of a request, and what was reported of it.

    Attributes:
        epoch: the newest epoch; -1: a new one begins.
        texts: text of each segment of that epoch, and whether it was final.
        reported: index of the newest segment of that epoch with a report; -1: none.
    """

    epoch: int = -1
    texts: dict[int, tuple[str, bool]] = field(default_factory=dict)
    reported: int = -1


class HostJournal:
    """The journal of one machine in all lives of its server, and what it must hold.

    Args:
        path: the file.
        wall_s: returns the machine's time of day, seconds.
        pause: lets time pass for the server.
        fired: takes the kind of a fault that happens.

    Attributes:
        emptied: the present life cannot go on with the requests of the one before: a full disk has
            ended its journal, or it is of another release.
        pause_s: time after which a process that a record has ended comes back, seconds.
    """

    def __init__(
        self,
        path: Path,
        wall_s: Callable[[], float],
        pause: Callable[[float], None],
        fired: Callable[[str], None],
    ) -> None:
        self._path = path
        self._wall_s = wall_s
        self._pause = pause
        self._fired = fired
        self._faults: list[_Fault] = []
        self._issued: dict[str, _Issued] = {}
        self._again: set[str] = set()
        self._waiting: list[RunEvent] = []
        self._file: _FailingFile | None = None
        self._foreign = self._exchanged = False
        self.emptied = False
        self.pause_s = 0.0

    @property
    def killed(self) -> bool:
        """Whether a record has ended the process."""
        return self._file is not None and self._file.killed

    @property
    def saved_ids(self) -> Collection[str]:
        """The requests with which the present life goes on."""
        return () if self._file is None else self._file.saved.keys()

    def hit(self, kind: str, size: float) -> None:
        """Let a fault hit the next record.

        Args:
            kind: one of `OF_JOURNALS`.
            size: 0 to 1.
        """

        def happen(append: _Append, line: bytes) -> int:
            self._fired(kind)
            assert self._file is not None
            if kind == "disk slow":
                self._pause(SLOWEST_S * size)
                return append(line)
            if kind == "disk full":
                if size < 0.5:
                    return append(line[: int(2.0 * size * len(line))])
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            if kind == "record torn":
                append(line[: int(size * len(line))])
            elif size < 0.5:
                append(line)
            self._file.killed = True
            self.pause_s = 0.2 + 5.0 * size
            raise Killed

        self._faults.append(happen)

    # Lives of the server.

    def open(self) -> JournalFile:
        """Begin a life: read the file of the one before, and check it."""
        self.emptied = self._exchanged or (self._file is not None and self._file.failed)
        if self._file is not None and self._file.failed:
            ensure(
                not self._path.exists(),
                "a journal that has ended is removed",
                f"{self._path.name} would begin again",
            )
            self._issued = {}
        release = "another release" if self._foreign else "a history"
        self._waiting.clear()
        self._file = _FailingFile(self._path, release, self._wall_s, self._written)
        if self._exchanged:
            ensure(
                not self._file.saved,
                "the journal of another release is set aside",
                f"{sorted(self._file.saved)} of {self._path.name} would go on",
            )
            self._issued, self._exchanged = {}, False
        self._file.faults = self._faults  # those of the next records, in whichever life
        self._check(self._file.saved)
        self._again = set(self._file.saved)
        return self._file

    def exchange(self) -> None:
        """Let the next life be one of another release, or of the first one again."""
        self._foreign, self._exchanged = not self._foreign, True

    def end(self) -> None:
        """End a life at once."""
        if self._file is not None:
            self._file.close()

    def _check(self, saved: dict[str, SavedRequest]) -> None:
        for key, issued in self._issued.items():
            ensure(
                key in saved,
                "the journal has every accepted request",
                f"{key} is not in {self._path.name}",
            )
            one = saved[key]
            ensure(
                one.epoch >= issued.epoch,
                "the journal has every epoch",
                f"{key} is at epoch {issued.epoch}, and at {one.epoch} in {self._path.name}",
            )
            if one.epoch != issued.epoch:
                continue
            ensure(
                issued.texts.items() <= one.published.items(),
                "a segment is recorded before it is published",
                f"{key} has {issued.texts}, and {one.published} in {self._path.name}",
            )
            ensure(
                issued.reported <= max(one.started, one.finished),
                "the journal has every report",
                f"segment {issued.epoch}/{issued.reported} of {key} was reported",
            )

    # What the server does.

    def accepted(self, request: Request) -> None:
        """Take a request that the server accepted."""
        if request.request_id not in self._again:
            self._issued[request.request_id] = _Issued()

    def ended(self, request_id: str) -> None:
        """Take the end of a request."""
        self._issued.pop(request_id, None)
        self._again.discard(request_id)

    def segment(self, segment: Segment) -> None:
        """Take a segment that the server publishes."""
        issued = self._issued.get(segment.request_id)
        if issued is None:
            return
        what = f"segment {segment.epoch}/{segment.index} of {segment.request_id}"
        ensure(segment.epoch >= issued.epoch, "epochs only grow", f"{what} is late")
        if segment.epoch > issued.epoch:
            issued.epoch, issued.texts, issued.reported = segment.epoch, {}, -1
        if segment.index in issued.texts:
            text, final = issued.texts[segment.index]
            ensure(
                segment.index > issued.reported or (segment.final and not final),
                "a segment is not issued again after its report",
                f"{what} was issued again",
            )
            ensure(
                text.startswith(segment.text) or segment.text.startswith(text),
                "a segment that is issued again has the same text",
                f"{what} was {text!r}, and is {segment.text!r}",
            )
            if final and not segment.final:
                return  # the mark comes again, too
        issued.texts[segment.index] = segment.text, segment.final

    # The server's event log. An event counts once the journal has written it.

    def write(self, event: RunEvent) -> None:
        """Take an event; its record may wait."""
        self._waiting.append(event)

    def _written(self) -> None:
        for event in self._waiting:
            match event:
                case ReportEvent() if (issued := self._issued.get(event.id)) is not None:
                    issued.reported = max(issued.reported, event.index)
                case ReplanEvent() if (issued := self._issued.get(event.id)) is not None:
                    issued.epoch, issued.texts, issued.reported = issued.epoch + 1, {}, -1
        self._waiting.clear()

    def close(self) -> None:
        """Do nothing: the server's journal closes its file."""
