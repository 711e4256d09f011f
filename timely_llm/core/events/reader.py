"""Reads JSON-lines files while other processes write them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from timely_llm.core.errors import TimelyError
from timely_llm.core.events.codec import EventError, from_json, kind_of
from timely_llm.core.events.log import is_event
from timely_llm.core.events.run_event import RunEvent
from timely_llm.core.events.schema import OpenedEvent

_OPENED = kind_of(OpenedEvent)


class LogError(TimelyError):
    """A log holds a line that is not an event."""


class LineAssembler:
    """Makes events of bytes that may be cut anywhere.

    A killed writer may leave an incomplete line. Such a line is skipped if the next line begins a
    new life of the writer.
    """

    def __init__(self) -> None:
        self._rest = b""
        self._lines = 0
        self._torn: LogError | None = None

    def feed(self, data: bytes) -> list[RunEvent]:
        """Return the events of the lines that `data` completes; an unfinished line is kept.

        Events of unknown kinds are left out: a newer version wrote them.

        Raises:
            LogError: a complete line is not an event.
        """
        *lines, self._rest = (self._rest + data).split(b"\n")
        events = [event for line in lines if (event := self._event(line)) is not None]
        if self._torn is not None and not self._rest:
            raise self._torn
        return events

    def _event(self, line: bytes) -> RunEvent | None:
        """Return the event of a line; None: there is none, or the line may be incomplete."""
        self._lines += 1
        found: dict[str, Any] | None = json.loads(line) if is_event(line) else None
        torn, self._torn = self._torn, None
        if torn is not None and (found is None or found["event"] != _OPENED):
            raise torn
        if found is None:
            shown = line[:60].decode(errors="replace")
            self._torn = LogError(
                f'line {self._lines} must be a JSON object with "event" and "t", not {shown!r}'
            )
            return None
        try:
            return from_json(found)
        except EventError as error:
            raise LogError(f"line {self._lines}: {error}") from error


def last_life(events: Sequence[RunEvent]) -> list[RunEvent]:
    """Return the events of a writer's last life in a log: those from the last `opened` on."""
    begins = [place for place, event in enumerate(events) if isinstance(event, OpenedEvent)]
    return list(events[begins[-1] if begins else 0 :])


class LogReader:
    """Follows one growing file, which need not exist yet."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0
        self._assembler = LineAssembler()

    def read(self) -> list[RunEvent]:
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
