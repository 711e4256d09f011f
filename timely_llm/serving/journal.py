"""The journal: what the loop did, as JSON lines, for timelines and post-mortems."""

from __future__ import annotations

import json
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol

from timely_llm.core.errors import RequestError


class Journal(Protocol):
    """Takes one event at a time; `t` is seconds on the loop's clock."""

    def write(self, event: str, t: float, **values: Any) -> None:
        """Enter an event."""
        ...


class NoJournal:
    """Forgets everything."""

    def write(self, event: str, t: float, **values: Any) -> None:
        """Do nothing."""


class FileJournal:
    """A JSON-lines file: {"event": ..., "t": seconds, ...}, readable while it grows.

    Raises:
        RequestError: the file cannot be written.
    """

    def __init__(self, path: str | Path) -> None:
        try:
            self._file = Path(path).open("w", encoding="utf-8", buffering=1)  # noqa: SIM115
        except OSError as error:
            raise RequestError(f"cannot write the journal {path}: {error.strerror}") from error

    def write(self, event: str, t: float, **values: Any) -> None:
        """Write an event as one line."""
        self._file.write(json.dumps({"event": event, "t": round(t, 6), **values}) + "\n")

    def close(self) -> None:
        """Close the file; nothing may be written afterwards."""
        self._file.close()

    def __enter__(self) -> FileJournal:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
