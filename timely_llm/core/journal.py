"""The journal: what happened, as JSON lines, for timelines and post-mortems."""

from __future__ import annotations

import contextlib
import fcntl
import json
import logging
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol, TextIO

from timely_llm.core.errors import ConfigurationError

log = logging.getLogger(__name__)
OPENED = "opened"
"""The event with which each life of a writer begins."""
MAX_LINE_BYTES = 1 << 20
"""A first line that is longer is no event."""


class Journal(Protocol):
    """Takes one event at a time; `t` is seconds on the writer's clock."""

    def write(self, event: str, t: float, **values: Any) -> None:
        """Enter an event."""
        ...

    def close(self) -> None:
        """Write nothing any more."""
        ...


class NoJournal:
    """Forgets everything."""

    def write(self, event: str, t: float, **values: Any) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""


class MemoryJournal:
    """Keeps events in memory, in the order in which they were entered.

    Attributes:
        events: each {"event": ..., "t": seconds, ...}, as a line of a file journal.
    """

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []

    def write(self, event: str, t: float, **values: Any) -> None:
        """Keep an event."""
        self.events.append({"event": event, "t": t, **values})

    def close(self) -> None:
        """Keep what was entered."""


class FileJournal:
    """A JSON-lines file: {"event": ..., "t": seconds, ...}, readable while it grows.

    Every life of a writer begins with the event `opened` and follows the lives before it: nothing
    that is there is ever overwritten. One process at a time writes a file.

    Args:
        path: a new file, an empty one, or a journal.

    Raises:
        ConfigurationError: the file cannot be written, is none, is another kind of file, or is
            being written by somebody else.
    """

    def __init__(self, path: str | Path) -> None:
        self._file: TextIO | None
        try:
            self._file, torn = _opened(Path(path))
        except OSError as error:
            raise ConfigurationError(
                f"cannot write the journal {path}: {error.strerror}"
            ) from error
        self._write(torn + _line(OPENED, time.monotonic(), {}))

    def write(self, event: str, t: float, **values: Any) -> None:
        """Write an event as one line; a disk that is full ends the journal, not the server."""
        if self._file is not None:
            self._write(_line(event, t, values))

    def _write(self, text: str) -> None:
        assert self._file is not None
        try:
            self._file.write(text)
        except OSError as error:
            log.error("the journal ends here: %s", error)
            self.close()

    def close(self) -> None:
        """Let another process write the file; events that come later are forgotten."""
        file, self._file = self._file, None
        if file is not None:
            with contextlib.suppress(OSError):  # the end of a journal on a full disk
                file.close()


def _line(event: str, t: float, values: Mapping[str, Any]) -> str:
    return json.dumps({"event": event, "t": round(t, 6), **values}) + "\n"


def _opened(path: Path) -> tuple[TextIO, str]:
    """Return a file to which events can be appended, and what ends the line that it ends with."""
    if path.exists() and not (path.is_file() or path.is_char_device()):
        raise ConfigurationError(f"cannot write the journal {path}: it is not a file")
    descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o666)
    file = os.fdopen(descriptor, "a", encoding="utf-8", buffering=1)
    try:
        if path.is_file():
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise ConfigurationError(
                    f"cannot write the journal {path}: another process is writing it"
                ) from None
            size = os.fstat(descriptor).st_size
            if size and not is_event(os.pread(descriptor, MAX_LINE_BYTES, 0).partition(b"\n")[0]):
                raise ConfigurationError(
                    f"cannot write the journal {path}: its first line is no event, and files of"
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
    """Return whether a line is an event of a journal."""
    try:
        event = json.loads(line)
    except (ValueError, RecursionError):
        return False
    return isinstance(event, dict) and "event" in event and "t" in event
