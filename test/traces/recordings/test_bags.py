"""Bags of traces are rosbag2 recordings that others can read, and others' recordings are traces."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from mcap.writer import CompressionType
from mcap.writer import Writer as McapWriter
from rosbags.highlevel import AnyReader
from rosbags.rosbag2 import CompressionFormat, CompressionMode, StoragePlugin, Writer

from test.traces.workloads import SMALL
from timely_llm.core.time_utility import NORMAL, URGENT
from timely_llm.traces.files import read_trace, write_trace
from timely_llm.traces.lines import request_line
from timely_llm.traces.model import TraceError
from timely_llm.traces.recordings import bags
from timely_llm.traces.recordings.bags import LINE_TOPIC, LINE_TYPE, ORIGIN_NS, REQUEST_TOPIC
from timely_llm.traces.recordings.messages import decoded, type_store
from timely_llm.traces.recordings.recorded import REQUEST_TYPE
from timely_llm.traces.streams import STREAM_TOPIC, STREAM_TYPE


def test_requests_are_messages_at_their_times_of_arrival(tmp_path: Path) -> None:
    write_trace(SMALL, tmp_path / "bag")
    with AnyReader([tmp_path / "bag"], default_typestore=type_store()) as reader:
        assert {c.topic: (c.msgtype, c.msgcount) for c in reader.connections} == {
            LINE_TOPIC: (LINE_TYPE, 4),
            REQUEST_TOPIC: (REQUEST_TYPE, 2),
            STREAM_TOPIC: (STREAM_TYPE, 1),
        }
        wanted = [c for c in reader.connections if c.topic == REQUEST_TOPIC]
        found: list[tuple[int, Any]] = [
            (time_ns, reader.deserialize(data, connection.msgtype))
            for connection, time_ns, data in reader.messages(wanted)
        ]
        assert reader.start_time == ORIGIN_NS
    (first_ns, first), (second_ns, second) = found
    assert (first_ns - ORIGIN_NS, second_ns - ORIGIN_NS) == (100_000_000, 101_000_000)
    assert (first.request_id, first.task) == ("a", "Find the cat.\nNow.")
    assert (second.time_utility.beta, second.time_utility.ert) == (URGENT.beta, URGENT.ert_s)


def test_another_reader_of_mcap_understands_a_bag(tmp_path: Path) -> None:
    decoders = pytest.importorskip("mcap_ros2.decoder")
    readers = pytest.importorskip("mcap.reader")
    write_trace(SMALL, tmp_path / "a.mcap")
    with (tmp_path / "a.mcap").open("rb") as file:
        reader = readers.make_reader(file, decoder_factories=[decoders.DecoderFactory()])
        found = [
            (channel.topic, message.log_time, decoded)
            for _, channel, message, decoded in reader.iter_decoded_messages()
        ]
    requests = [(time, request) for topic, time, request in found if topic == REQUEST_TOPIC]
    assert [time - ORIGIN_NS for time, _ in requests] == [100_000_000, 101_000_000]
    assert [request.agent for _, request in requests] == ["drone_0", "drone_1"]
    assert requests[1][1].time_utility.alpha == URGENT.alpha


def test_a_live_node_has_the_same_type_and_the_same_bytes() -> None:
    serialization = pytest.importorskip("rclpy.serialization")
    from timely_llm import msg

    job, utility = SMALL.jobs[1], SMALL.jobs[1].time_utility
    live = msg.PlanRequest(
        request_id=job.id, agent=job.agent, skill_set=job.skill_set, task=job.text,
        time_utility=msg.TimeUtility(beta=utility.beta, alpha=utility.alpha, ert=utility.ert_s),
    )  # fmt: skip
    ours = bags._encoded(bags._plan_request(job, 0), REQUEST_TYPE)
    assert serialization.deserialize_message(ours, msg.PlanRequest) == live
    assert decoded(serialization.serialize_message(live), REQUEST_TYPE, Path()).agent == "drone_1"


OLD = "string request_id\nstring agent\nstring task\n"


@pytest.mark.parametrize(
    ("definition", "words"),
    [(OLD, "was recorded with another version of the interfaces"), ("string 1", "is damaged")],
)
def test_a_bag_of_other_interfaces_is_refused_in_one_sentence(
    tmp_path: Path, definition: str, words: str
) -> None:
    with (tmp_path / "old.mcap").open("wb") as file:
        writer = McapWriter(file, compression=CompressionType.NONE)
        writer.start(profile="ros2", library="test")
        schema = writer.register_schema(REQUEST_TYPE, "ros2msg", definition.encode())
        channel = writer.register_channel("/plan_server/requests", "cdr", schema)
        writer.add_message(channel, 0, b"\0\1\0\0", 0)
        writer.finish()  # type: ignore[no-untyped-call]
    with pytest.raises(TraceError, match=words):
        read_trace(tmp_path / "old.mcap")


def test_a_live_node_reads_what_a_conversation_asks() -> None:
    serialization = pytest.importorskip("rclpy.serialization")
    from timely_llm import msg

    (talk,) = SMALL.conversations
    ours = bags._encoded(bags._stream_request(talk, 0), STREAM_TYPE)
    live = serialization.deserialize_message(ours, msg.StreamRequest)
    assert [(one.role, one.content) for one in live.messages] == [("user", "A story.")]
    assert (live.request_id, live.agent, live.max_tokens) == ("c", "person_0", 400)
    assert (live.ttft, live.tpot, live.deadline) == (1.0, 0.125, 30.0)
    assert live.words_per_s == 3.0, "as slow as speech: it is heard"


@pytest.mark.parametrize("mode", [CompressionMode.NONE, CompressionMode.STORAGE])
def test_recorded_plan_requests_are_a_trace(tmp_path: Path, mode: CompressionMode) -> None:
    with Recorder(tmp_path / "night", mode) as recorder:
        recorder.request(7_000_000_000, request_id="x", agent="r2", task="Later.")
        recorder.request(5_000_000_000, request_id="x", agent="r1", task="First.")
        recorder.request(9_500_000_000, agent="r3", task="No name.", urgent=True)
        recorder.text(6_000_000_000, "/chatter", "not ours")
    trace = read_trace(tmp_path / "night")
    assert trace.name == "night"
    assert [(job.id, job.arrival_s, job.agent) for job in trace.jobs] == [
        ("x", 0.0, "r1"),
        ("x+1", 2.0, "r2"),
        ("request_2", 4.5, "r3"),
    ]
    assert [job.time_utility for job in trace.jobs] == [NORMAL, NORMAL, URGENT]
    (file,) = (tmp_path / "night").glob("*.mcap")
    assert read_trace(file) == trace


def test_a_recorded_plan_that_was_written_by_hand_stays_one(tmp_path: Path) -> None:
    with Recorder(tmp_path / "day") as recorder:
        recorder.request(1_000_000_000, "x", task="", given_plan="tp();", topic="/lab/requests")
        recorder.request(2_000_000_000, "y", task="Look.", topic="/lab/requests")
    trace = read_trace(tmp_path / "day")
    told = [(job.task, job.given, job.plan) for job in trace.jobs]
    assert told == [("given", True, "tp();"), ("recorded", False, "")]
    assert ["given" in request_line(job) for job in trace.jobs] == [True, False]
    write_trace(trace, tmp_path / "again.mcap")
    assert read_trace(tmp_path / "again.mcap").jobs == trace.jobs
    sent = [
        decoded(message.data, REQUEST_TYPE, tmp_path).given_plan
        for message in bags.bag_messages(tmp_path / "again.mcap", print)
        if message.channel.type == REQUEST_TYPE
    ]
    assert sent == ["tp();", ""]


def test_what_a_server_accepted_counts_once_however_it_came(tmp_path: Path) -> None:
    with Recorder(tmp_path / "day") as recorder:
        recorder.request(1_000_000_000, task="By topic.")
        recorder.request(1_001_000_000, "x", task="By topic.", topic="/lab/requests")
        recorder.request(4_001_000_000, "y", task="By action.", topic="/lab/requests")
    jobs = read_trace(tmp_path / "day").jobs
    assert [(j.id, j.arrival_s, j.text) for j in jobs] == [
        ("x", 0.0, "By topic."),
        ("y", 3.0, "By action."),
    ]


def test_a_bag_of_a_killed_recorder_is_read_as_far_as_it_goes(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with Recorder(tmp_path / "bag") as recorder:
        recorder.request(1_000_000_000, "x")
    (file,) = (tmp_path / "bag").glob("*.mcap")
    whole = read_trace(file)
    assert not caplog.messages
    (tmp_path / "bag" / "metadata.yaml").unlink()
    content = file.read_bytes()
    file.write_bytes(content[: content.index(b"\x0f\x04\0\0\0\0\0\0\0")])  # DataEnd
    assert read_trace(tmp_path / "bag").jobs == whole.jobs
    (warning,) = caplog.messages
    assert "is cut off, its end is missing: the messages before it are read" in warning


def test_a_foreign_bag_is_named(tmp_path: Path) -> None:
    with Recorder(tmp_path / "bag") as recorder:
        recorder.text(1, "/chatter", "hello")
    with pytest.raises(TraceError, match=r"is not a trace: .*, but std_msgs/msg/String"):
        read_trace(tmp_path / "bag")


def test_messages_that_are_damaged_get_one_sentence(tmp_path: Path) -> None:
    with Recorder(tmp_path / "a") as recorder:
        recorder.write(1, REQUEST_TOPIC, REQUEST_TYPE, b"\0\1\0\0\xff\xff\xff\xff")
    with Recorder(tmp_path / "b") as recorder:
        recorder.text(1, LINE_TOPIC, "hello")
    with Recorder(tmp_path / "c") as recorder:
        recorder.text(1, LINE_TOPIC, "x" * 300_000)
    with Recorder(tmp_path / "d") as recorder:
        recorder.request(1, agent="")
    for name, complaint in (
        ("a", "is damaged, or of another version of this type"),
        ("b", "line 1: it is not valid JSON"),
        ("c", "a line is longer than 262144 bytes"),
        ("d", "plan request 0: request_0: agent must have 1 to 256 characters"),
    ):
        with pytest.raises(TraceError, match=complaint):
            read_trace(tmp_path / name)


def test_a_folder_that_is_no_bag_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.db3").touch()
    with pytest.raises(TraceError, match=r"has 0 \.mcap files.*ros2 bag convert"):
        read_trace(tmp_path)


def test_bags_have_limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_trace(SMALL, tmp_path / "bag")
    monkeypatch.setattr(bags, "MAX_BYTES", 100)
    with pytest.raises(TraceError, match=r"larger than a trace may be: .*, 100 bytes"):
        read_trace(tmp_path / "bag")
    monkeypatch.setattr(bags, "MAX_REQUESTS", 1)
    with pytest.raises(TraceError, match="larger than a trace may be: 1 requests"):
        read_trace(tmp_path / "bag")


class Recorder:
    """Writes a bag as others would."""

    def __init__(self, path: Path, mode: CompressionMode = CompressionMode.NONE) -> None:
        self._writer = Writer(path, version=9, storage_plugin=StoragePlugin.MCAP)
        self._writer.set_compression(mode, CompressionFormat.ZSTD)
        self._connections: dict[str, Any] = {}

    def __enter__(self) -> Recorder:
        self._writer.open()
        return self

    def __exit__(self, *_: object) -> None:
        self._writer.close()

    def write(self, time_ns: int, topic: str, kind: str, data: bytes) -> None:
        """Write raw bytes."""
        if topic not in self._connections:
            self._connections[topic] = self._writer.add_connection(
                topic, kind, typestore=type_store()
            )
        self._writer.write(self._connections[topic], time_ns, data)

    def text(self, time_ns: int, topic: str, text: str) -> None:
        """Write a text."""
        self.write(time_ns, topic, LINE_TYPE, bags._encoded(bags._text(text), LINE_TYPE))

    def request(
        self, time_ns: int, request_id: str = "", agent: str = "r", task: str = "Go.",
        urgent: bool = False, topic: str = "/lab/plan_requests", given_plan: str = "",
    ) -> None:  # fmt: skip
        """Write a plan request; what is not urgent leaves its worth to the server."""
        message = bags._plan_request(SMALL.jobs[1], 0)
        message.request_id, message.agent, message.task = request_id, agent, task
        message.given_plan = given_plan
        if not urgent:
            utility = message.time_utility
            utility.beta = utility.alpha = utility.ert = 0.0
        self.write(time_ns, topic, REQUEST_TYPE, bags._encoded(message, REQUEST_TYPE))
