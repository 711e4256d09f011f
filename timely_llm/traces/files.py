"""Files of traces: JSON lines, which need no ROS, or bags. The path's ending names the kind."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from timely_llm.core.output_file import JSON, OutputFileError, write_file
from timely_llm.traces.lines import (
    MAX_LINE_BYTES,
    header_line,
    in_order,
    read_lines,
    request_line,
)
from timely_llm.traces.model import Trace, TraceError
from timely_llm.traces.recordings.bags import read_bag, write_bag

MAX_FILE_BYTES = 67_108_864


def write_jsonl(trace: Trace, path: Path) -> None:
    """Write a trace. It replaces an existing trace when it is complete.

    Raises:
        TraceError: the file cannot be written, or exists and is not JSON.
    """

    def write(file: BinaryIO) -> None:
        for line in (header_line(trace), *map(request_line, in_order(trace))):
            file.write(f"{line}\n".encode())

    try:
        write_file(path, JSON, write)
    except OutputFileError as error:
        raise TraceError(str(error)) from error


def read_jsonl(path: Path) -> Trace:
    """Return the trace in a file of JSON lines.

    Raises:
        TraceError: the file cannot be read or is not a trace.
    """
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            raise TraceError(
                f"{path} has {path.stat().st_size} bytes, a trace may have {MAX_FILE_BYTES}"
            )
        return read_lines(_lines(path), str(path))
    except OSError as error:
        raise TraceError(f"cannot read the trace {path}: {error.strerror}") from error


def _lines(path: Path) -> Iterator[bytes]:
    """Yield the lines that are not empty.

    Raises:
        TraceError: a line is too long.
    """
    with path.open("rb") as file:
        number = 0
        while line := file.readline(MAX_LINE_BYTES + 2):
            number += 1
            if len(line.rstrip(b"\r\n")) > MAX_LINE_BYTES:
                raise TraceError(f"{path}, line {number} is longer than {MAX_LINE_BYTES} bytes")
            if line.strip():
                yield line


KINDS = ".jsonl (JSON lines), .mcap (a bag's file) or no ending (a bag's folder)"

PUBLISHED = (".json", ".csv")
"""Endings of published traces of other projects."""


def check_kind(path: Path) -> None:
    """Check that the ending of a path names a kind of trace.

    Raises:
        TraceError: it does not.
    """
    if path.suffix not in (".jsonl", ".mcap", "") and not path.is_dir():
        if path.suffix in PUBLISHED:
            raise TraceError(
                f"{path}: the name of a trace ends with {KINDS}, not {path.suffix}: a published one"
                " is imported first, by `timely-llm trace import`"
            )
        raise TraceError(f"{path}: the name of a trace ends with {KINDS}, not {path.suffix}")


def read_trace(path: str | Path) -> Trace:
    """Return the trace in a file or in the folder of a bag.

    Raises:
        TraceError: it cannot be read or is not a trace.
    """
    path = Path(path)
    check_kind(path)
    if not path.exists():
        raise TraceError(f"there is no trace {path}")
    return read_jsonl(path) if path.suffix == ".jsonl" else read_bag(path)


def write_trace(trace: Trace, path: str | Path) -> None:
    """Write a trace to a file, or as a bag to a new folder.

    Raises:
        TraceError: it cannot be written.
    """
    path = Path(path)
    check_kind(path)
    (write_jsonl if path.suffix == ".jsonl" else write_bag)(trace, path)
