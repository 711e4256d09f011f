"""A bag in the making: raw messages in, a rosbag2 recording that survives its writer out."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections import Counter, deque
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from timely_llm.core.errors import TimelyError
from timely_llm.traces.mcap import MAX_RECORD_BYTES
from timely_llm.traces.messages import type_store

if TYPE_CHECKING:
    from rosbags.interfaces import Qos

FLUSH_S = 1.0
"""Seconds between two moments at which all that was taken is on the disk."""
MAX_WAITING_BYTES = 268_435_456
"""Most bytes of messages that wait for the disk."""
MAX_MESSAGE_BYTES = MAX_RECORD_BYTES // 2
"""Longest message that is taken: one that the readers here take too."""

_PAUSE_S = 0.1
_MESSAGE_BYTES = 200  # of memory that a waiting message needs besides its data


class RecordingError(TimelyError):
    """A recording cannot be begun, or cannot go on."""


class Recording:
    """Writes messages to the folder of a new bag (MCAP), in a thread of its own.

    Every `FLUSH_S` a chunk goes to the disk, with the topics and types that are new in it. If the
    process is killed, all chunks can be read; what is missing then are the end of the file, with
    the index, and metadata.yaml.

    Args:
        folder: the bag, which must not exist.

    Attributes:
        written: messages in the file by topic.
        written_bytes: bytes of these messages.
        problem: one sentence, when nothing can be written any more.

    Raises:
        RecordingError: the bag exists, or cannot be made.
        TraceError: rosbags is not installed.
    """

    def __init__(self, folder: Path) -> None:
        self._types = type_store()
        from rosbags import rosbag2

        self.folder = folder
        self.written: Counter[str] = Counter()
        self.written_bytes = 0
        self.problem = ""
        self._connections: dict[str, Any] = {}
        self._waiting: deque[tuple[str, int, bytes]] = deque()
        # Each of these is counted by one thread only.
        self._taken_bytes = self._done_bytes = 0
        self._taken = self._refused = self._safe = 0
        self._closing = threading.Event()
        self._offers: dict[str, tuple[str, Sequence[Qos]]] = {}
        if folder.exists():
            raise RecordingError(f"{folder} exists: a bag is recorded to a new folder")
        self._writer = rosbag2.Writer(folder, version=9, storage_plugin=rosbag2.StoragePlugin.MCAP)
        try:
            self._writer.open()
            self._storage: Any = self._writer.storage
            self._flush()
        except OSError as error:
            raise RecordingError(f"cannot record to {folder}: {error.strerror}") from error
        self._thread = threading.Thread(target=self._run, name="recording", daemon=True)
        self._thread.start()

    @property
    def lost(self) -> int:
        """Messages that were too long, had no room to wait, or came after the disk had failed."""
        return self._refused + (self._taken - self._safe if self.problem else 0)

    def open_topic(self, topic: str, kind: str, offered: Sequence[Qos]) -> None:
        """Tell of a topic, before its first message.

        Args:
            topic: its full name.
            kind: the type of its messages, one of ROS's common ones or ours.
            offered: the quality of service of its publishers.
        """
        self._offers[topic] = (kind, offered)

    def write(self, topic: str, time_ns: int, data: bytes) -> None:
        """Take a message; never waits. Called by one thread.

        Args:
            topic: one that was opened.
            time_ns: when it was received, nanoseconds since 1970.
            data: as it came (CDR).
        """
        size = len(data) + _MESSAGE_BYTES
        room = MAX_WAITING_BYTES - (self._taken_bytes - self._done_bytes)
        if self.problem or size > room or len(data) > MAX_MESSAGE_BYTES:
            self._refused += 1
            return
        self._taken += 1
        self._taken_bytes += size
        self._waiting.append((topic, time_ns, data))

    def close(self) -> None:
        """Write what waits and finish the bag.

        Raises:
            RecordingError: not everything could be written; what was can be read.
        """
        self._closing.set()
        self._thread.join()
        if self.problem:
            raise RecordingError(self.problem)

    def _run(self) -> None:
        try:
            flushed_s = time.monotonic()
            while not self._closing.wait(_PAUSE_S):
                self._write_waiting()
                if time.monotonic() >= flushed_s + FLUSH_S:
                    self._flush()
                    flushed_s = time.monotonic()
            self._write_waiting()
            self._writer.close()
        except OSError as error:
            self._fail(error.strerror or str(error))
        except Exception as error:  # whatever it is: what was written stays, and the user hears
            self._fail(f"{type(error).__name__}: {error}")

    def _write_waiting(self) -> None:
        for _ in range(len(self._waiting)):
            topic, time_ns, data = self._waiting.popleft()
            self._writer.write(self._connection(topic), time_ns, data)
            self._done_bytes += len(data) + _MESSAGE_BYTES
            self.written[topic] += 1
            self.written_bytes += len(data)

    def _connection(self, topic: str) -> Any:
        """Return the writer's side of a topic; its type goes before its first message."""
        if topic not in self._connections:
            kind, offered = self._offers[topic]
            self._connections[topic] = self._writer.add_connection(
                topic, kind, typestore=self._types, offered_qos_profiles=offered
            )
        return self._connections[topic]

    def _flush(self) -> None:
        """Put everything on the disk that was written."""
        if self._storage.chunk.msgs:
            self._storage.close_chunk()
        self._storage.bio.flush()
        os.fsync(self._storage.bio.fileno())
        self._safe = self.written.total()

    def _fail(self, reason: str) -> None:
        self.problem = (
            f"cannot write to {self.folder} any more: {reason}; its first {self._safe} messages"
            " can be read"
        )
        with contextlib.suppress(OSError):
            self._writer.abort()
