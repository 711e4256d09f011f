"""Messages of untrusted MCAP files, read in order and in bounded memory.

A reader that follows a file's index and unpacks whole chunks lets a small file claim any amount of
memory, and cannot read a file without an end. This reader goes through the records from the start
and needs no index (https://mcap.dev/spec).
"""

from __future__ import annotations

import struct
import sys
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO

from timely_llm.traces.model import TraceError

MAX_RECORD_BYTES = 67_108_864
"""Longest record, and longest chunk after decompression, in bytes."""

MAX_CHANNELS = 1_000
MAX_SCHEMAS = 1_000

_MAGIC = b"\x89MCAP0\r\n"
_SCHEMA, _CHANNEL, _MESSAGE, _CHUNK, _DATA_END = 0x03, 0x04, 0x05, 0x06, 0x0F


@dataclass(frozen=True)
class Channel:
    """A topic of a file, the name of its type, and the type's definition."""

    topic: str
    type: str
    definition: str


@dataclass(frozen=True)
class BagMessage:
    """A recorded message; `time_ns` is on the recorder's clock."""

    channel: Channel
    time_ns: int
    data: bytes


class CutOff(TraceError):
    """The end of a file is missing, as after a kill of its recorder; the part before is whole."""


class _Broken(Exception):
    """A file has an invalid record."""


class _Ended(Exception):
    """A file ends in the middle."""


def read_messages(path: Path) -> Iterator[BagMessage]:
    """Yield the messages of an MCAP file, in the order of the file.

    Raises:
        CutOff: the end is missing; raised after the last whole message.
        TraceError: the file cannot be read, is not an MCAP file, or is damaged.
    """
    try:
        with path.open("rb") as file:
            yield from _Reader().messages(file)
    except _Ended:
        raise CutOff(f"the bag {path} is cut off, its end is missing") from None
    except OSError as error:
        raise TraceError(f"cannot read the bag {path}: {error.strerror}") from error
    except (_Broken, struct.error, UnicodeDecodeError, MemoryError) as error:
        words = str(error) if isinstance(error, _Broken) else "a record is damaged"
        raise TraceError(f"cannot read the bag {path}: {words}") from error


class _Reader:
    """The schemas and channels of a file that is being read."""

    def __init__(self) -> None:
        self._schemas: dict[int, tuple[str, str]] = {0: ("", "")}
        self._channels: dict[int, Channel] = {}

    def messages(self, file: BinaryIO) -> Iterator[BagMessage]:
        head = file.read(len(_MAGIC))
        if not _MAGIC.startswith(head):
            raise _Broken("it does not begin like an MCAP file")
        if head != _MAGIC:
            raise _Ended
        for kind, content in _records(file):
            if kind == _DATA_END:
                return
            if kind == _CHUNK:
                for inner, record in _chunk_records(content):
                    yield from self._take(inner, record)
            else:
                yield from self._take(kind, content)
        raise _Ended

    def _take(self, kind: int, record: bytes) -> Iterator[BagMessage]:
        fields = _Fields(record)
        if kind == _SCHEMA:
            number, name, encoding = fields.number("<H"), fields.text(), fields.text()
            self._schemas[number] = (name, fields.text() if encoding == "ros2msg" else "")
        elif kind == _CHANNEL:
            number, schema, topic = fields.number("<H"), fields.number("<H"), fields.text()
            if schema not in self._schemas:
                raise _Broken(f"the type of topic {topic[:80]!r} is missing")
            self._channels[number] = Channel(topic, *self._schemas[schema])
        elif kind == _MESSAGE:
            number, _, time_ns, _ = struct.unpack_from("<HIQQ", record)
            if number not in self._channels:
                raise _Broken(f"the topic of a message (channel {number}) is missing")
            yield BagMessage(self._channels[number], time_ns, record[22:])
        if len(self._channels) > MAX_CHANNELS or len(self._schemas) > MAX_SCHEMAS:
            raise _Broken(f"it has more than {MAX_CHANNELS} topics or {MAX_SCHEMAS} types")


class _Fields:
    """The fields of a record, read in order."""

    def __init__(self, record: bytes) -> None:
        self._record = record
        self._place = 0

    def number(self, form: str) -> int:
        (value,) = struct.unpack_from(form, self._record, self._place)
        self._place += struct.calcsize(form)
        return int(value)

    def bytes(self, form: str = "<I") -> bytes:
        length = self.number(form)
        end = self._place + length
        if end > len(self._record):
            raise _Broken("a record is shorter than its length")
        value, self._place = self._record[self._place : end], end
        return value

    def text(self) -> str:
        return self.bytes().decode()


def _records(file: BinaryIO) -> Iterator[tuple[int, bytes]]:
    """Yield the kind and the content of each record up to the end of the file."""
    while head := file.read(9):
        if len(head) < 9:
            raise _Ended
        kind, length = struct.unpack("<BQ", head)
        if kind == 0:
            raise _Broken("a record has no kind")
        if length > MAX_RECORD_BYTES:
            raise _Broken(f"a record of {length} bytes is longer than {MAX_RECORD_BYTES}")
        content = file.read(length)
        if len(content) < length:
            raise _Ended
        yield kind, content


def _chunk_records(chunk: bytes) -> Iterator[tuple[int, bytes]]:
    try:
        yield from _records(BytesIO(_unpacked(chunk)))
    except _Ended:
        raise _Broken("a chunk ends in the middle of a record") from None


def _unpacked(chunk: bytes) -> bytes:
    """Return the decompressed records of a chunk, of bounded length."""
    fields = _Fields(chunk)
    fields.number("<Q"), fields.number("<Q")
    length, checksum = fields.number("<Q"), fields.number("<I")
    compression, packed = fields.text(), fields.bytes("<Q")
    if length > MAX_RECORD_BYTES:
        raise _Broken(f"a chunk of {length} bytes is longer than {MAX_RECORD_BYTES}")
    records = packed if not compression else _inflated(compression, packed, length)
    if len(records) != length:
        raise _Broken("a chunk does not have its length")
    if checksum and zlib.crc32(records) != checksum:
        raise _Broken("a chunk's checksum is wrong")
    return records


def _inflated(compression: str, packed: bytes, length: int) -> bytes:
    """Return at most one byte more than `length`, so that the caller detects a longer chunk."""
    try:
        unpacker = _unpacker(compression)
        parts, have = [], 0
        while not unpacker.eof and have <= length:
            part: bytes = unpacker.decompress(packed, length + 1 - have)
            packed = b""
            if not part and unpacker.needs_input:
                break
            parts.append(part)
            have += len(part)
        return b"".join(parts)
    except (_Broken, MemoryError):
        raise
    except ImportError as error:
        raise _Broken(
            f"{compression} needs the package {error.name}, which is not installed:"
            " pip install 'timely_llm[bags]'"
        ) from error
    except Exception as error:  # each library has its own errors
        raise _Broken(f"a chunk is not valid {compression}") from error


def _unpacker(compression: str) -> Any:
    """Return an incremental decompressor. Both libraries come with rosbags."""
    if compression == "lz4":
        return import_module("lz4.frame").LZ4FrameDecompressor()
    if compression == "zstd":
        library = "compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd"
        return import_module(library).ZstdDecompressor()
    raise _Broken(f"its compression {compression[:20]!r} is not known")
