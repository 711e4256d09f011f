"""The event log: events of the loop and of robots as JSON lines, for timelines and post-mortems."""

from __future__ import annotations

import contextlib
import fcntl
import json
import logging
import os
import time
from pathlib import Path
from typing import Protocol, TextIO

from timely_llm.core.errors import ConfigurationError
from timely_llm.core.events.codec import as_json
from timely_llm.core.events.run_event import RunEvent
from timely_llm.core.events.schema import OpenedEvent

log = logging.getLogger(__name__)
MAX_LINE_BYTES = 1 << 20
"""Longest first line that can be an event, bytes."""


class EventLog(Protocol):
    """Takes one event at a time."""

    def write(self, event: RunEvent) -> None:
        """Write an event."""
        ...

    def close(self) -> None:
        """End the log."""
        ...


class NullEventLog:
    """Discards all events."""

    def write(self, event: RunEvent) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""


class EventLogs:
    """Passes each event on to several event logs."""

    def __init__(self, *event_logs: EventLog) -> None:
        self._event_logs = event_logs

    def write(self, event: RunEvent) -> None:
        """Write an event to each log."""
        for event_log in self._event_logs:
            event_log.write(event)

    def close(self) -> None:
        """Close each log."""
        for event_log in self._event_logs:
            event_log.close()


class MemoryEventLog:
    """Keeps events in memory, in order.

    Attributes:
        events: all that were written.
    """

    def __init__(self) -> None:
        self.events: list[RunEvent] = []

    def write(self, event: RunEvent) -> None:
        """Keep an event."""
        self.events.append(event)

    def close(self) -> None:
        """Keep the events."""


class FileEventLog:
    """A JSON-lines file: {"event": ..., "t": seconds, ...}, readable while it grows.

    Each life of a writer appends to the file, and begins with the event `opened`. Nothing is ever
    overwritten. One process at a time writes a file.

    Args:
        path: a new file, an empty file, or an event log.

    Raises:
        ConfigurationError: the path cannot be written, is no file, is a file of another kind, or
            another process is writing it.
    """

    def __init__(self, path: str | Path) -> None:
        self._file: TextIO | None
        try:
            self._file, torn = _opened(Path(path))
        except OSError as error:
            raise ConfigurationError(
                f"cannot write the event log {path}: {error.strerror}"
            ) from error
        self._write(torn + _line(OpenedEvent(time.monotonic())))

    def write(self, event: RunEvent) -> None:
        """Write an event as one line; a disk that is full ends the event log, not the server."""
        if self._file is not None:
            self._write(_line(event))

    def _write(self, text: str) -> None:
        assert self._file is not None
        try:
            self._file.write(text)
        except OSError as error:
            log.error("the event log ends here: %s", error)
            self.close()

    def close(self) -> None:
        """Let another process write the file; events that come later are forgotten."""
        file, self._file = self._file, None
        if file is not None:
            with contextlib.suppress(OSError):  # the end of an event log on a full disk
                file.close()


def _line(event: RunEvent) -> str:
    return json.dumps({**as_json(event), "t": round(event.t, 6)}) + "\n"


def _opened(path: Path) -> tuple[TextIO, str]:
    """Return a file for appending, and the line end that its torn last line lacks."""
    if path.exists() and not (path.is_file() or path.is_char_device()):
        raise ConfigurationError(f"cannot write the event log {path}: it is not a file")
    descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o666)
    file = os.fdopen(descriptor, "a", encoding="utf-8", buffering=1)
    try:
        if path.is_file():
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise ConfigurationError(
                    f"cannot write the event log {path}: another process is writing it"
                ) from None
            size = os.fstat(descriptor).st_size
            if size and not is_event(os.pread(descriptor, MAX_LINE_BYTES, 0).partition(b"\n")[0]):
                raise ConfigurationError(
                    f"cannot write the event log {path}: its first line is no event, and files of"
                    " another kind are not changed: name a new file"
                )
            # A writer may have been ended in the middle of a line.
            if size and os.pread(descriptor, 1, size - 1) != b"\n":
                return file, "\n"
    except BaseException:
        file.close()
        raise
    return file, ""


def is_event(line: bytes) -> bool:
    """Return whether a line is an event of an event log."""
    try:
        event = json.loads(line)
    except (ValueError, RecursionError):
        return False
    return isinstance(event, dict) and "event" in event and "t" in event
