"""Reads JSON-lines files while other processes write them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from timely_llm.core.errors import TimelyError

Event = dict[str, Any]
"""One line: {"event": its kind, "t": seconds on the machine's monotonic clock, ...}."""


class LogError(TimelyError):
    """A log holds a line that is not an event."""


class LineAssembler:
    """Makes events of bytes that may be cut anywhere."""

    def __init__(self) -> None:
        self._rest = b""
        self._lines = 0

    def feed(self, data: bytes) -> list[Event]:
        """Return the events of the lines that `data` completes; an unfinished line is kept.

        Raises:
            LogError: a complete line is not an event.
        """
        *lines, self._rest = (self._rest + data).split(b"\n")
        return [self._event(line) for line in lines]

    def _event(self, line: bytes) -> Event:
        self._lines += 1
        try:
            event = json.loads(line)
        except ValueError:
            event = None
        if not isinstance(event, dict) or "event" not in event or "t" not in event:
            shown = line[:60].decode(errors="replace")
            raise LogError(
                f'line {self._lines} must be a JSON object with "event" and "t", not {shown!r}'
            )
        return event


class LogReader:
    """Follows one growing file, which need not exist yet."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0
        self._assembler = LineAssembler()

    def read(self) -> list[Event]:
        """Return the events written since the last call.

        Raises:
            LogError: a complete line is not an event.
        """
        try:
            with self._path.open("rb") as file:
                file.seek(self._offset)
                data = file.read()
        except FileNotFoundError:
            return []
        self._offset += len(data)
        try:
            return self._assembler.feed(data)
        except LogError as error:
            raise LogError(f"{self._path}: {error}") from None
