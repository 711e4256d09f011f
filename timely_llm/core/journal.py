"""The journal: what happened, as JSON lines, for timelines and post-mortems."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any, Protocol, TextIO

from timely_llm.core.errors import ConfigurationError

log = logging.getLogger(__name__)


class Journal(Protocol):
    """Takes one event at a time; `t` is seconds on the writer's clock."""

    def write(self, event: str, t: float, **values: Any) -> None:
        """Enter an event."""
        ...


class NoJournal:
    """Forgets everything."""

    def write(self, event: str, t: float, **values: Any) -> None:
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


class FileJournal:
    """A JSON-lines file: {"event": ..., "t": seconds, ...}, readable while it grows.

    Raises:
        ConfigurationError: the file cannot be written.
    """

    def __init__(self, path: str | Path) -> None:
        try:
            self._file: TextIO | None = Path(path).open("w", encoding="utf-8", buffering=1)  # noqa: SIM115
        except OSError as error:
            raise ConfigurationError(
                f"cannot write the journal {path}: {error.strerror}"
            ) from error

    def write(self, event: str, t: float, **values: Any) -> None:
        """Write an event as one line; a disk that is full ends the journal, not the server."""
        if self._file is None:
            return
        try:
            self._file.write(json.dumps({"event": event, "t": round(t, 6), **values}) + "\n")
        except OSError as error:
            log.error("the journal ends here: %s", error)
            self._file = None
