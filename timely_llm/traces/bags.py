"""Traces as rosbag2 recordings (MCAP), for `ros2 bag info` and `ros2 bag play`.

A bag of a trace has these topics:

- `/plan_server/plan_requests`, timely_llm/msg/PlanRequest: each job as the request that a robot
  would send, at its time of arrival. `ros2 bag play` alone replays the workload against a server;
  `--remap` sends it to a server of another name.
- `/plan_server/stream_requests`, timely_llm/msg/StreamRequest: the same of conversations.
- `/timely_llm/trace`, std_msgs/msg/String: the lines of the trace as in a file of JSON lines
  (`lines.py`), the header at the trace's origin and each request at its time of arrival. This is
  what `read_bag` reads: times are exact there, and it has all that a PlanRequest does not say.

A recording of a running server without the last topic is a trace too (`recorded.py`).

Only MCAP is read, with its chunks packed or not, of all files of a bag's folder together. A file
whose end is missing, because its recorder was killed, counts up to there, with a warning.
"""

from __future__ import annotations

import logging
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from timely_llm.core.errors import RequestError
from timely_llm.core.output_file import MCAP, OutputFileError, check
from timely_llm.traces.lines import (
    MAX_LINE_BYTES,
    MAX_REQUESTS,
    header_line,
    in_order,
    read_lines,
    request_line,
)
from timely_llm.traces.mcap import CutOff, Message, read_messages
from timely_llm.traces.messages import decoded, type_store
from timely_llm.traces.model import Conversation, Job, Trace, TraceError, printable
from timely_llm.traces.recorded import REQUEST_TYPE, Requests
from timely_llm.traces.streams import STREAM_TOPIC, STREAM_TYPE, request_of, stream_message

log = logging.getLogger(__name__)
LINE_TYPE = "std_msgs/msg/String"
REQUEST_TOPIC = "/plan_server/plan_requests"
LINE_TOPIC = "/timely_llm/trace"

ORIGIN_NS = 1_577_836_800_000_000_000
"""The origin of every written trace: 2020-01-01, since a clock at 0 means that there is none."""

MAX_FILES = 1_000
MAX_BYTES = 67_108_864
"""Most bytes of a trace's messages; others of a bag are passed over."""

_CDR_HEAD = 64  # bytes of a text's message besides its line


def write_bag(trace: Trace, path: Path) -> None:
    """Write a trace.

    Args:
        trace: the workload.
        path: a folder, which must not exist, for a whole bag with metadata.yaml; or a path that
            ends with .mcap for the file alone, which replaces one that is there and such a file.

    Raises:
        TraceError: it cannot be written.
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
        TraceError: one sentence; it cannot be read or holds no trace.
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
            # The lines of a replay that was ended early, or of several: what came of them counts.
            log.warning("%s: its lines are no whole trace: its accepted requests are taken", path)
    if requests.count:
        return requests.trace()
    found = printable(", ".join(sorted(kinds)[:5]))[:200] or "nothing"
    raise TraceError(
        f"{path} is no trace: it has neither {LINE_TOPIC} ({LINE_TYPE}) nor messages of"
        f" {REQUEST_TYPE} or {STREAM_TYPE}, but {found}"
    )


def bag_messages(path: Path, warn: Callable[[str], object]) -> Iterator[Message]:
    """Yield the messages of a bag's folder, all its files together, or of one .mcap file.

    Args:
        path: the folder, with or without metadata.yaml, or the file.
        warn: given one sentence for each file whose end is missing.

    Raises:
        TraceError: one sentence; it cannot be read.
    """
    files = [path]
    if path.is_dir():
        files = sorted(path.glob("*.mcap"), key=lambda file: (len(file.name), file.name))
        if not 1 <= len(files) <= MAX_FILES:
            raise TraceError(
                f"{path} has {len(files)} .mcap files, the folder of a bag has 1 to {MAX_FILES}:"
                " other storage can be turned into MCAP with `ros2 bag convert`"
            )
    for file in files:
        try:
            yield from read_messages(file)
        except CutOff as error:
            warn(f"{error}: what comes before it is read")


def _write(trace: Trace, bag: Path) -> None:
    """Write a bag to a folder that does not exist."""
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
                data = _encoded(_plan_request(request), REQUEST_TYPE)
                writer.write(requests, time_ns, data)
            elif (asked := _stream_request(request)) is not None:
                writer.write(streams, time_ns, _encoded(asked, STREAM_TYPE))


def _text(line: str) -> Any:
    return type_store().types[LINE_TYPE](data=line)


def _plan_request(job: Job) -> Any:
    types, utility = type_store().types, job.time_utility
    return types[REQUEST_TYPE](
        request_id=job.id,
        agent=job.agent,
        skill_set=job.skill_set,
        task=job.text,
        time_utility=types["timely_llm/msg/TimeUtility"](
            beta=utility.beta, alpha=utility.alpha, ert=utility.ert_s
        ),
        max_tokens=0,
        temperature=0.0,
        seed=0,
        closed_loop=False,
    )


def _stream_request(conversation: Conversation) -> Any:
    """Return the message that asks for an answer; None if no server takes it."""
    try:
        return stream_message(request_of(conversation))
    except RequestError:
        return None


def _encoded(message: Any, kind: str) -> bytes:
    return bytes(type_store().serialize_cdr(message, kind))
