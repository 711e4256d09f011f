"""Rosbag2 recordings (MCAP): traces as bags, the messages of bags, and a writer of live messages.

A bag of a trace has these topics:

- `/plan_server/plan_requests`, timely_llm/msg/PlanRequest: each job as a robot's request, at its
  arrival. `ros2 bag play` alone replays the workload against a server; `--remap` sends it to a
  server of another name.
- `/plan_server/stream_requests`, timely_llm/msg/StreamRequest: each conversation, in the same way.
- `/timely_llm/trace`, std_msgs/msg/String: the lines of the trace as in a file of JSON lines
  (`lines.py`), the header at the trace's origin and each request at its arrival. `read_bag` reads
  this topic: its times are exact, and it has the fields that a PlanRequest lacks.

A recording of a running server without the last topic is a trace too (`recorded.py`).

Readers take MCAP only, compressed or not, and all files of a bag's folder together. A file without
an end, after its recorder was killed, is read up to there, with a warning.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import tempfile
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from timely_llm.core.errors import RequestError, TimelyError
from timely_llm.core.output_file import MCAP, OutputFileError, check
from timely_llm.traces.lines import (
    MAX_LINE_BYTES,
    MAX_REQUESTS,
    header_line,
    in_order,
    read_lines,
    request_line,
)
from timely_llm.traces.model import Conversation, Job, Trace, TraceError, printable
from timely_llm.traces.recordings.mcap import MAX_RECORD_BYTES, BagMessage, CutOff, read_messages
from timely_llm.traces.recordings.messages import (
    check_definition,
    decoded,
    name_distribution,
    stamp,
    type_store,
    unsigned,
)
from timely_llm.traces.recordings.recorded import REQUEST_TYPE, Requests
from timely_llm.traces.streams import STREAM_TOPIC, STREAM_TYPE, request_of, stream_message

if TYPE_CHECKING:
    from rosbags.interfaces import Qos


log = logging.getLogger(__name__)
LINE_TYPE = "std_msgs/msg/String"
REQUEST_TOPIC = "/plan_server/plan_requests"
LINE_TOPIC = "/timely_llm/trace"

ORIGIN_NS = 1_577_836_800_000_000_000
"""The origin of every written trace: 2020-01-01, since ROS reads 0 as "no clock"."""

MAX_FILES = 1_000
MAX_BYTES = 67_108_864
"""Most bytes of a trace's messages. Other messages of a bag do not count."""

_CDR_HEAD = 64  # most bytes of a String message besides its line


def write_bag(trace: Trace, path: Path) -> None:
    """Write a trace.

    Args:
        trace: the workload.
        path: a new folder for a whole bag with metadata.yaml; or a path that ends with .mcap for
            the file alone, which replaces an existing MCAP file.

    Raises:
        TraceError: the trace cannot be written.
    """
    try:
        if path.suffix != ".mcap" and path.exists():
            raise TraceError(f"{path} exists: a bag is written to a new folder")
        if path.suffix == ".mcap":
            check(path, MCAP)
        with tempfile.TemporaryDirectory(dir=path.absolute().parent, prefix=".bag-") as folder:
            bag = Path(folder) / path.stem if path.suffix == ".mcap" else Path(folder) / path.name
            _write(trace, bag)
            if path.suffix == ".mcap":
                (bag / f"{bag.name}.mcap").replace(path)
            else:
                shutil.move(bag, path)
    except OSError as error:
        raise TraceError(f"cannot write the trace {path}: {error.strerror}") from error
    except OutputFileError as error:
        raise TraceError(str(error)) from error


def read_bag(path: Path) -> Trace:
    """Return the trace in a bag's folder, or in one of its .mcap files.

    Raises:
        TraceError: the bag cannot be read or has no trace.
    """
    kinds: Counter[str] = Counter()
    lines: list[bytes] = []
    requests = Requests(path)
    size = 0
    for message in bag_messages(path, log.warning):
        kinds[message.channel.type] += 1
        if message.channel.type == LINE_TYPE and message.channel.topic == LINE_TOPIC:
            if len(message.data) > MAX_LINE_BYTES + _CDR_HEAD:
                raise TraceError(f"{path}: a line is longer than {MAX_LINE_BYTES} bytes")
            lines.append(message.data)
        elif not requests.take(message):
            continue
        size += len(message.data)
        if max(len(lines) - 1, requests.count) > MAX_REQUESTS or size > MAX_BYTES:
            raise TraceError(
                f"{path} is larger than a trace may be: {MAX_REQUESTS} requests, {MAX_BYTES} bytes"
            )
    if lines:
        texts = (decoded(line, LINE_TYPE, path).data for line in lines)
        try:
            return read_lines(texts, str(path))
        except TraceError:
            if not requests.accepted:
                raise
            # A replay that ended early, or several: the accepted requests are the workload.
            log.warning("%s: its lines are not a whole trace: reading accepted requests", path)
    if requests.count:
        return requests.trace()
    found = printable(", ".join(sorted(kinds)[:5]))[:200] or "nothing"
    raise TraceError(
        f"{path} is not a trace: it has neither {LINE_TOPIC} ({LINE_TYPE}) nor messages of"
        f" {REQUEST_TYPE} or {STREAM_TYPE}, but {found}"
    )


def bag_messages(path: Path, warn: Callable[[str], object]) -> Iterator[BagMessage]:
    """Yield the messages of a bag's folder, all its files together, or of one .mcap file.

    Args:
        path: the folder, with or without metadata.yaml, or the file.
        warn: called with one sentence for each file without an end.

    Raises:
        TraceError: the bag cannot be read.
    """
    files = [path]
    if path.is_dir():
        files = sorted(path.glob("*.mcap"), key=lambda file: (len(file.name), file.name))
        if not 1 <= len(files) <= MAX_FILES:
            raise TraceError(
                f"{path} has {len(files)} .mcap files; the folder of a bag has 1 to {MAX_FILES}."
                " `ros2 bag convert` converts other storage to MCAP"
            )
    for file in files:
        try:
            for message in read_messages(file):
                check_definition(message.channel.type, message.channel.definition, path)
                yield message
        except CutOff as error:
            warn(f"{error}: the messages before it are read")


def _write(trace: Trace, bag: Path) -> None:
    """Write a bag to a new folder."""
    types = type_store()
    from rosbags import rosbag2

    with rosbag2.Writer(bag, version=9, storage_plugin=rosbag2.StoragePlugin.MCAP) as writer:
        lines = writer.add_connection(LINE_TOPIC, LINE_TYPE, typestore=types)
        requests = writer.add_connection(REQUEST_TOPIC, REQUEST_TYPE, typestore=types)
        streams = writer.add_connection(STREAM_TOPIC, STREAM_TYPE, typestore=types)
        writer.write(lines, ORIGIN_NS, _encoded(_text(header_line(trace)), LINE_TYPE))
        for request in in_order(trace):
            time_ns = ORIGIN_NS + round(request.arrival_s * 1e9)
            writer.write(lines, time_ns, _encoded(_text(request_line(request)), LINE_TYPE))
            if isinstance(request, Job):
                data = _encoded(_plan_request(request, time_ns), REQUEST_TYPE)
                writer.write(requests, time_ns, data)
            elif (asked := _stream_request(request, time_ns)) is not None:
                writer.write(streams, time_ns, _encoded(asked, STREAM_TYPE))
    name_distribution(bag)


def _text(line: str) -> Any:
    return type_store().types[LINE_TYPE](data=line)


def _plan_request(job: Job, time_ns: int) -> Any:
    types, utility = type_store().types, job.time_utility
    return types[REQUEST_TYPE](
        stamp=stamp(time_ns),
        request_id=job.id,
        agent=job.agent,
        skill_set=job.skill_set,
        task=job.text,
        given_plan=job.plan if job.given else "",
        time_utility=types["timely_llm/msg/TimeUtility"](
            beta=utility.beta, alpha=utility.alpha, ert=utility.ert_s
        ),
        max_tokens=0,
        temperature=0.0,
        seed=0,
        mode=0,
        closed_loop=False,
        epoch=0,
        dispatcher="",
        signature=unsigned(),
    )


def _stream_request(conversation: Conversation, time_ns: int) -> Any:
    """Return the message of a conversation; None if no server admits it."""
    try:
        return stream_message(request_of(conversation), time_ns)
    except RequestError:
        return None


def _encoded(message: Any, kind: str) -> bytes:
    return bytes(type_store().serialize_cdr(message, kind))


FLUSH_S = 1.0
"""Seconds between two flushes of all messages to the disk."""
MAX_WAITING_BYTES = 268_435_456
"""Most bytes of messages that wait for the disk."""
MAX_MESSAGE_BYTES = MAX_RECORD_BYTES // 2
"""Longest recorded message: this package's readers take it too."""

_PAUSE_S = 0.1
_MESSAGE_BYTES = 200  # memory of a waiting message besides its data


class RecordingError(TimelyError):
    """A recording cannot begin or continue."""


class BagWriter:
    """Writes messages to the folder of a new bag (MCAP), in a thread of its own.

    Every `FLUSH_S` a chunk goes to the disk, with its new topics and types. After a kill of the
    process, all chunks can be read; the end of the file with its index is missing, and so is
    metadata.yaml.

    Args:
        folder: the bag, a new folder.

    Attributes:
        written: messages in the file by topic.
        written_bytes: bytes of the written messages.
        problem: the reason why writing has failed; empty before.

    Raises:
        RecordingError: the bag exists, or cannot be made.
        RequirementError: rosbags is not installed.
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
        # Only one thread changes each counter.
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
        """Number of messages that were too long, had no room to wait, or came after a failure."""
        return self._refused + (self._taken - self._safe if self.problem else 0)

    def open_topic(self, topic: str, kind: str, offered: Sequence[Qos]) -> None:
        """Define a topic before its first message.

        Args:
            topic: full name of the topic.
            kind: type of its messages, one of ROS's common types or of this package.
            offered: quality of service of its publishers.
        """
        self._offers[topic] = (kind, offered)

    def write(self, topic: str, time_ns: int, data: bytes) -> None:
        """Take a message without blocking. Called by one thread.

        Args:
            topic: an opened topic.
            time_ns: time of reception, nanoseconds since 1970.
            data: the message's CDR bytes.
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
        """Write all waiting messages and finish the bag.

        Raises:
            RecordingError: a message could not be written; the written ones can be read.
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
            name_distribution(self.folder)
        except OSError as error:
            self._fail(error.strerror or str(error))
        except Exception as error:  # the written part stays readable after any error
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
        """Flush all written messages to the disk."""
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
