"""A recording can be read by others, whatever ended it."""

from __future__ import annotations

import resource
import shutil
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from rosbags.highlevel import AnyReader
from rosbags.interfaces import (
    ConnectionExtRosbag2,
    Qos,
    QosDurability,
    QosHistory,
    QosLiveliness,
    QosReliability,
    QosTime,
)

from test.examples import examples
from test.traces.workloads import SMALL
from timely_llm.traces.recordings import bags
from timely_llm.traces.recordings.bags import (
    LINE_TOPIC,
    LINE_TYPE,
    BagWriter,
    RecordingError,
    bag_messages,
    write_bag,
)
from timely_llm.traces.recordings.mcap import BagMessage
from timely_llm.traces.recordings.messages import stamp, type_store

SEGMENTS, SEGMENT = "/plan_server/segments", "timely_llm/msg/Segment"
NEVER = QosTime(9223372036, 854775807)
KEPT = Qos(
    QosHistory.KEEP_LAST, 7, QosReliability.RELIABLE, QosDurability.TRANSIENT_LOCAL, NEVER, NEVER,
    QosLiveliness.AUTOMATIC, NEVER, False,
)  # fmt: skip


def line(text: str) -> bytes:
    types = type_store()
    return bytes(types.serialize_cdr(types.types[LINE_TYPE](data=text), LINE_TYPE))


def segment(index: int) -> bytes:
    kinds = type_store().types
    argument = kinds["timely_llm/msg/SkillArgument"]("cm", 1, "50")
    calls = [kinds["timely_llm/msg/SkillCall"]("mf", [argument], 2.0, False)]
    message = kinds[SEGMENT](
        stamp(index), "r", "drone_1", index, 0, "mf(50);", False, calls, 2.0, False,
        np.zeros(0, np.uint8),
    )  # fmt: skip
    return bytes(type_store().serialize_cdr(message, SEGMENT))


def begin(folder: Path) -> BagWriter:
    made = BagWriter(folder)
    made.open_topic(LINE_TOPIC, LINE_TYPE, [KEPT])
    made.open_topic(SEGMENTS, SEGMENT, [])
    return made


def until(condition: Callable[[], object]) -> None:
    end_s = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end_s, "waited in vain"
        time.sleep(0.01)


def left_behind(folder: Path, copy: Path) -> list[BagMessage]:
    """Return what could be read if the process were killed now."""
    shutil.copytree(folder, copy)
    warnings: list[str] = []
    found = list(bag_messages(copy, warnings.append))
    assert not (copy / "metadata.yaml").exists()
    assert len(warnings) == 1
    assert "is cut off" in warnings[0]
    return found


def test_others_read_what_was_recorded(tmp_path: Path) -> None:
    made = begin(tmp_path / "bag")
    for index in range(5):
        made.write(SEGMENTS, 1_000 + index, segment(index))
    made.write(LINE_TOPIC, 2_000, line("late"))
    made.close()
    assert made.written == Counter({SEGMENTS: 5, LINE_TOPIC: 1})
    assert (made.lost, made.problem) == (0, "")

    with AnyReader([tmp_path / "bag"]) as reader:  # by the definitions in the bag alone
        found: list[tuple[str, int, Any]] = [
            (connection.topic, time_ns, reader.deserialize(data, connection.msgtype))
            for connection, time_ns, data in reader.messages()
        ]
        (lines,) = (c for c in reader.connections if c.topic == LINE_TOPIC)
        assert isinstance(lines.ext, ConnectionExtRosbag2)
        assert lines.ext.offered_qos_profiles == [KEPT]
        assert reader.message_count == 6
    assert [(topic, time_ns) for topic, time_ns, _ in found] == [
        *((SEGMENTS, 1_000 + index) for index in range(5)),
        (LINE_TOPIC, 2_000),
    ]
    assert [message.index for _, _, message in found[:5]] == list(range(5))
    assert found[0][2].calls[0].name == "mf"

    ros2 = pytest.importorskip("mcap_ros2.reader")
    decoded = list(ros2.read_ros2_messages(str(tmp_path / "bag" / "bag.mcap")))
    assert [m.log_time_ns for m in decoded] == [time_ns for _, time_ns, _ in found]
    assert decoded[-1].ros_msg.data == "late"


@pytest.mark.parametrize("distribution", ["jazzy", "kilted", "unknown"])
def test_the_metadata_names_the_distribution_that_ran(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, distribution: str
) -> None:
    used = "timely_llm.traces.recordings.messages.ros_distribution"
    monkeypatch.setattr(used, lambda: distribution)
    made = begin(tmp_path / "bag")
    made.write(SEGMENTS, 0, segment(0))
    made.close()
    metadata = yaml.safe_load((tmp_path / "bag" / "metadata.yaml").read_text())
    assert metadata["rosbag2_bagfile_information"]["ros_distro"] == distribution
    with AnyReader([tmp_path / "bag"]) as reader:
        assert reader.message_count == 1
    write_bag(SMALL, tmp_path / "trace")
    metadata = yaml.safe_load((tmp_path / "trace" / "metadata.yaml").read_text())
    assert metadata["rosbag2_bagfile_information"]["ros_distro"] == distribution


def test_what_was_flushed_outlives_the_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bags, "FLUSH_S", 0.01)
    made = begin(tmp_path / "bag")
    assert left_behind(made.folder, tmp_path / "at once") == []
    for index in range(100):
        made.write(SEGMENTS, index, segment(index))
    bare = (made.folder / "bag.mcap").stat().st_size
    until(lambda: (made.folder / "bag.mcap").stat().st_size > bare + 100 * len(segment(0)))
    found = left_behind(made.folder, tmp_path / "later")
    made.close()
    assert [message.time_ns for message in found] == list(range(100))
    assert found[7].data == segment(7)

    readers = pytest.importorskip("mcap.reader")
    decoders = pytest.importorskip("mcap_ros2.decoder")
    indexes = []
    with (
        (tmp_path / "later" / "bag.mcap").open("rb") as file,
        pytest.raises(import_error("mcap.exceptions", "EndOfFile")),
    ):
        reader = readers.NonSeekingReader(file, decoder_factories=[decoders.DecoderFactory()])
        for _, _, _, decoded in reader.iter_decoded_messages(log_time_order=False):
            indexes.append(decoded.index)
    assert indexes == list(range(100))


def import_error(module: str, name: str) -> type[Exception]:
    kind: type[Exception] = getattr(pytest.importorskip(module), name)
    return kind


@examples(25)
@given(
    messages=st.lists(
        st.tuples(st.booleans(), st.integers(0, 2**63 - 1), st.binary(max_size=300)), max_size=40
    )
)
def test_bytes_come_back_as_they_came(
    tmp_path_factory: pytest.TempPathFactory, messages: list[tuple[bool, int, bytes]]
) -> None:
    folder = tmp_path_factory.mktemp("recording") / "bag"
    made = begin(folder)
    for is_line, time_ns, data in messages:
        made.write(LINE_TOPIC if is_line else SEGMENTS, time_ns, data)
    made.close()
    found = list(bag_messages(folder, pytest.fail))
    assert [(m.channel.type == LINE_TYPE, m.time_ns, m.data) for m in found] == messages


def test_what_cannot_wait_for_the_disk_is_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bags, "MAX_WAITING_BYTES", 10_000)
    made = begin(tmp_path / "bag")
    for _ in range(50):
        made.write(LINE_TOPIC, 1, bytes(2_000))
    made.close()
    assert made.lost > 0
    assert made.written.total() + made.lost == 50
    assert len(list(bag_messages(made.folder, pytest.fail))) == made.written.total()


def test_what_readers_would_refuse_is_not_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bags, "MAX_MESSAGE_BYTES", 10)
    made = begin(tmp_path / "bag")
    made.write(LINE_TOPIC, 1, bytes(10))
    made.write(LINE_TOPIC, 2, bytes(11))
    made.close()
    assert made.lost == 1
    assert [m.time_ns for m in bag_messages(made.folder, pytest.fail)] == [1]


def test_a_disk_that_is_full_ends_a_recording_and_leaves_what_it_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bags, "FLUSH_S", 0.01)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, before[1]))
    try:
        made = begin(tmp_path / "bag")
        for time_ns in range(10):
            made.write(LINE_TOPIC, time_ns, bytes(5_000))
        until(lambda: (made.folder / "bag.mcap").stat().st_size > 50_000)
        for time_ns in range(10, 100):
            made.write(LINE_TOPIC, time_ns, bytes(5_000))
        until(lambda: made.problem)
        made.write(LINE_TOPIC, 100, b"after the end")
        with pytest.raises(RecordingError) as error:
            made.close()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    found = left_behind(made.folder, tmp_path / "copy")
    assert [message.time_ns for message in found] == list(range(10))
    assert "File too large; its first 10 messages can be read" in str(error.value)
    assert made.lost == 91


def test_a_bag_is_never_written_over(tmp_path: Path) -> None:
    with pytest.raises(RecordingError, match="exists: a bag is recorded to a new folder"):
        BagWriter(tmp_path)
    (tmp_path / "file").touch()
    with pytest.raises(RecordingError, match=r"cannot record to .*bag: Not a directory"):
        BagWriter(tmp_path / "file" / "bag")
