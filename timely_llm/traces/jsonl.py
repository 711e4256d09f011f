"""Traces as files of JSON lines, for people without ROS; the lines are those of `lines.py`."""

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

MAX_FILE_BYTES = 67_108_864


def write_jsonl(trace: Trace, path: Path) -> None:
    """Write a trace; one that is there is replaced when the new one is complete.

    Raises:
        TraceError: the file cannot be written, or is there and no JSON.
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
        TraceError: one sentence; it cannot be read or is no trace.
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
    """Yield lines that are not empty, none of them longer than a line may be."""
    with path.open("rb") as file:
        number = 0
        while line := file.readline(MAX_LINE_BYTES + 2):
            number += 1
            if len(line.rstrip(b"\r\n")) > MAX_LINE_BYTES:
                raise TraceError(f"{path}, line {number} is longer than {MAX_LINE_BYTES} bytes")
            if line.strip():
                yield line
