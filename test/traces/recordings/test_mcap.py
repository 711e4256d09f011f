"""MCAP files are read in bounded memory, whatever they say of themselves."""

from __future__ import annotations

import struct
import tracemalloc
import zlib
from importlib import import_module
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from timely_llm.traces.model import TraceError
from timely_llm.traces.recordings.mcap import (
    MAX_RECORD_BYTES,
    BagMessage,
    Channel,
    CutOff,
    read_messages,
)

zstd = pytest.importorskip("backports.zstd")
lz4 = import_module("lz4.frame")

MAGIC = b"\x89MCAP0\r\n"


def text(words: str) -> bytes:
    return struct.pack("<I", len(words)) + words.encode()


def record(kind: int, content: bytes) -> bytes:
    return struct.pack("<BQ", kind, len(content)) + content


SCHEMA = record(0x03, struct.pack("<H", 1) + text("a/msg/B") + text("ros2msg") + text("int8 x"))
CHANNEL = record(0x04, struct.pack("<HH", 1, 1) + text("/b") + text("cdr") + struct.pack("<I", 0))
MESSAGE = record(0x05, struct.pack("<HIQQ", 1, 0, 5, 5) + b"data")
HEAD = MAGIC + record(0x01, text("ros2") + text("test"))
DATA_END = record(0x0F, struct.pack("<I", 0))
FOUND = [BagMessage(Channel("/b", "a/msg/B", "int8 x"), 5, b"data")]


def chunk(
    records: bytes, compression: str = "", packed: bytes | None = None, size: int | None = None,
    checksum: int | None = None,
) -> bytes:  # fmt: skip
    packed = records if packed is None else packed
    size = len(records) if size is None else size
    checksum = zlib.crc32(records) if checksum is None else checksum
    head = struct.pack("<QQQI", 5, 5, size, checksum) + text(compression)
    return record(0x06, head + struct.pack("<Q", len(packed)) + packed)


def read(folder: Path, content: bytes) -> list[BagMessage]:
    (folder / "a.mcap").write_bytes(content)
    return list(read_messages(folder / "a.mcap"))


ALL = SCHEMA + CHANNEL + MESSAGE


@pytest.mark.parametrize(
    "content",
    [
        ALL,
        chunk(ALL),
        chunk(ALL, "lz4", lz4.compress(ALL)),
        chunk(ALL, "zstd", zstd.compress(ALL)),
        SCHEMA + CHANNEL + chunk(MESSAGE, checksum=0),
        record(0x42, b"of a later version") + ALL,
    ],
    ids=["plain", "chunk", "lz4", "zstd", "no checksum", "unknown record"],
)
def test_messages_are_read_packed_or_not(tmp_path: Path, content: bytes) -> None:
    assert read(tmp_path, HEAD + content + DATA_END + b"whatever the index says") == FOUND


BOMB = zstd.compress(bytes(1 << 30))


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"SQLite format 3\0", "does not begin like an MCAP file"),
        (HEAD + b"\x05" + b"\xff" * 8, "a record of 18446744073709551615 bytes is longer than"),
        (HEAD + bytes(9), "a record has no kind"),
        (HEAD + record(0x05, b"short") + DATA_END, "a record is damaged"),
        (HEAD + MESSAGE + DATA_END, r"the topic of a message \(channel 1\) is missing"),
        (HEAD + CHANNEL + DATA_END, "the type of topic '/b' is missing"),
        (HEAD + record(0x03, struct.pack("<HI", 1, 99)) + DATA_END, "shorter than its length"),
        (HEAD + record(0x03, struct.pack("<H", 1) + b"\1\0\0\0\xff"), "a record is damaged"),
        (HEAD + chunk(ALL, checksum=1), "a chunk's checksum is wrong"),
        (HEAD + chunk(ALL[:-2]), "a chunk ends in the middle of a record"),
        (HEAD + chunk(ALL, size=3), "a chunk does not have its length"),
        (HEAD + chunk(ALL, size=1 << 40), "a chunk of 1099511627776 bytes is longer than"),
        (HEAD + chunk(ALL, "zstd"), "a chunk is not valid zstd"),
        (HEAD + chunk(ALL, "lz4"), "a chunk is not valid lz4"),
        (HEAD + chunk(ALL, "zstd", zstd.compress(ALL)[:-3]), "a chunk does not have its length"),
        (HEAD + chunk(ALL, "rar"), "its compression 'rar' is not known"),
        (HEAD + chunk(ALL, "zstd", BOMB, MAX_RECORD_BYTES), "a chunk does not have its length"),
        (HEAD + chunk(ALL, "zstd", BOMB), "a chunk does not have its length"),
        (HEAD + chunk(chunk(ALL)) + CHANNEL, "the type of topic '/b' is missing"),
    ],
)
def test_what_is_broken_gets_one_sentence_and_little_memory(
    tmp_path: Path, content: bytes, complaint: str
) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(TraceError, match=f"cannot read the bag .*: .*{complaint}") as error:
            read(tmp_path, content)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert "\n" not in str(error.value)
    assert peak < 4 * MAX_RECORD_BYTES


WHOLE = HEAD + ALL + chunk(ALL, "lz4", lz4.compress(ALL)) + MESSAGE


@given(place=st.integers(0, len(WHOLE)))
def test_a_file_can_be_read_up_to_where_it_is_cut_off(
    tmp_path_factory: pytest.TempPathFactory, place: int
) -> None:
    file = tmp_path_factory.mktemp("cut") / "a.mcap"
    file.write_bytes(WHOLE[:place])
    found = []
    with pytest.raises(CutOff, match=r"the bag .*a\.mcap is cut off, its end is missing"):
        for message in read_messages(file):
            found.append(message)
    ends = (len(HEAD + ALL), len(WHOLE) - len(MESSAGE), len(WHOLE))
    assert found == FOUND * sum(place >= end for end in ends)


def test_a_file_of_nothing_but_topics_ends(tmp_path: Path) -> None:
    many = b"".join(
        record(0x04, struct.pack("<HH", n, 0) + text("/b") + text("") + bytes(4))
        for n in range(1_001)
    )
    with pytest.raises(TraceError, match="more than 1000 topics"):
        read(tmp_path, HEAD + many + DATA_END)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=r"cannot read the bag .*no\.mcap: No such file"):
        list(read_messages(tmp_path / "no.mcap"))
