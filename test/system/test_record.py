"""`timely-llm trace record` beside a real server: nothing is missing, whatever ends it."""

from __future__ import annotations

import signal
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rclpy.qos import DurabilityPolicy, QoSProfile, ReliabilityPolicy
from rosbags.highlevel import AnyReader
from std_msgs.msg import String

from test.system.conftest import Process, Start
from test.system.ros_client import Client, serving
from test.system.ros_talker import Talker
from timely_llm import msg, srv
from timely_llm.benchmarks.record import rows
from timely_llm.core.request import ErrorCode, ReportState
from timely_llm.traces.recordings.bags import LINE_TOPIC, bag_messages
from timely_llm.traces.recordings.messages import type_store

WAIT_S = 30.0
Found = list[tuple[str, Any]]
"""Messages by topic, in order."""


@pytest.fixture(scope="module")
def client(start: Start, domain: int) -> Iterator[Talker]:
    with serving(
        start,
        Talker,
        domain,
        engine="simulated",
        pace="millisecond",
        policy="stream",
        stats_period_s=0.1,
        publish_steps="true",
    ) as made:
        made.wait_for_server()
        made.until_listed({})
        yield made


def record(start: Start, bag: Path, *arguments: str) -> Process:
    return start("scripts/timely-llm", "trace", "record", str(bag), *arguments)


def contents(bag: Path) -> Found:
    """Return what can be read now."""
    warnings: list[str] = []
    if not list(bag.glob("*.mcap")):
        return []
    return [
        (m.channel.topic.removeprefix("/plan_server/"),
         type_store().deserialize_cdr(m.data, m.channel.type))
        for m in bag_messages(bag, warnings.append)
    ]  # fmt: skip


def of(found: Found, topic: str) -> list[Any]:
    return [message for name, message in found if name == topic]


def until_recorded(client: Client, bag: Path, topic: str, request_id: str) -> None:
    """Wait until a message about a request is in the bag."""
    client.until(
        lambda: any(m.request_id == request_id for m in of(contents(bag), topic)), wait_s=WAIT_S
    )


def until_it_listens(client: Client, bag: Path) -> None:
    """Wait until the recorder receives what the server and the client send."""
    client.until(lambda: bool(of(contents(bag), "stats")))
    alive = msg.ExecutionReport(agent="knock", state=int(ReportState.ALIVE))

    def heard() -> bool:
        client.reports.publish(alive)
        return bool(of(contents(bag), "execution_reports"))

    client.until(heard)


def serve(client: Client, name: str) -> None:
    """Let a plan be made by action, and report that its first segment was executed."""
    client.plan(client.goal(name))
    client.until(lambda: any(segment.final for segment in client.of(name)))
    client.reports.publish(
        msg.ExecutionReport(
            request_id=name, agent="tester", state=int(ReportState.FINISHED), duration=0.5
        )
    )


def test_everything_is_in_the_bag_and_others_read_it(
    start: Start, client: Talker, tmp_path: Path
) -> None:
    bag = tmp_path / "bag"
    recorder = record(start, bag)
    until_it_listens(client, bag)
    serve(client, "action")
    client.requests.publish(client.request("topic"))
    until_recorded(client, bag, "results", "topic")
    service = client.call(srv.SubmitPlan, "submit_plan", request=client.request()).request_id
    until_recorded(client, bag, "results", service)
    client.plan(client.goal("refused", skill_set="boat"))
    until_recorded(client, bag, "results", "refused")
    client.answer("answer")
    client.stream_requests.publish(msg.StreamRequest(request_id="flat", agent="t", prompt="Hi."))
    until_recorded(client, bag, "stream_results", "flat")
    recorder.interrupt()
    assert recorder.wait(WAIT_S) == 0, recorder.output
    assert f"Wrote {bag}" in recorder.output.replace("\n", "")

    found = contents(bag)
    accepted = ["action", "topic", service]
    assert [m.request_id for m in of(found, "requests")] == accepted
    assert [m.request_id for m in of(found, "plan_requests")] == ["topic"]
    assert {m.request_id: m.error_code for m in of(found, "results")} == {
        "action": ErrorCode.NONE,
        "topic": ErrorCode.NONE,
        service: ErrorCode.NONE,
        "refused": ErrorCode.UNKNOWN_SKILL_SET,
    }
    assert {m.agent for m in of(found, "results")} == {"tester"}
    ours = [(s.request_id, s.index) for s in client.segments if s.request_id in accepted]
    assert [(s.request_id, s.index) for s in of(found, "segments")] == ours
    (report,) = (m for m in of(found, "execution_reports") if m.agent == "tester")
    assert (report.request_id, report.duration) == ("action", 0.5)
    steps = of(found, "steps")
    asked = {*accepted, "answer", "flat"}
    shares = [share for step in steps for share in step.shares]
    assert {share.request_id for share in shares} == asked
    assert all(step.duration > 0 for step in steps) and all(share.tokens > 0 for share in shares)
    stamps = [step.stamp.sec + step.stamp.nanosec / 1e9 for step in steps]
    assert 0 < stamps[0] <= stamps[-1] <= time.time(), "on the server's clock"

    assert [m.request_id for m in of(found, "streams")] == ["answer", "flat"]
    assert [m.request_id for m in of(found, "stream_requests")] == ["flat"]
    for result in of(found, "stream_results"):
        tokens = [m for m in of(found, "stream_chunks") if m.request_id == result.request_id]
        assert [m.index for m in tokens] == list(range(result.generated_tokens))
        assert "".join(m.text for m in tokens) == result.text != ""

    counts = Counter(topic for topic, _ in found)
    with AnyReader([bag]) as reader:
        theirs = {c.topic.removeprefix("/plan_server/"): c.msgcount for c in reader.connections}
        assert theirs == counts
        for connection, _, data in reader.messages():
            reader.deserialize(data, connection.msgtype)
    ros2 = pytest.importorskip("mcap_ros2.reader")
    decoded = Counter(
        m.channel.topic.removeprefix("/plan_server/")
        for m in ros2.read_ros2_messages(str(bag / "bag.mcap"))
    )
    assert decoded == counts


@pytest.mark.counted
def test_a_recorder_that_is_killed_leaves_what_it_has(
    start: Start, client: Client, tmp_path: Path
) -> None:
    bag = tmp_path / "bag"
    recorder = record(start, bag)
    until_it_listens(client, bag)
    serve(client, "killed")
    until_recorded(client, bag, "execution_reports", "killed")
    recorder.popen.send_signal(signal.SIGKILL)
    recorder.wait(WAIT_S)
    assert not (bag / "metadata.yaml").exists()
    found = contents(bag)
    assert [m.request_id for m in of(found, "requests")] == ["killed"]
    assert len(of(found, "segments")) == len(client.of("killed"))

    info = start("scripts/timely-llm", "trace", "info", str(bag))
    assert info.wait(WAIT_S) == 0, info.output
    assert "is cut off, its end is missing: the messages before it are read" in info.output
    assert "jobs            1" in info.output


def test_lines_of_a_trace_are_recorded_also_when_they_came_before(
    start: Start, client: Client, tmp_path: Path
) -> None:
    kept = QoSProfile(
        depth=10, reliability=ReliabilityPolicy.RELIABLE,
        durability=DurabilityPolicy.TRANSIENT_LOCAL,
    )  # fmt: skip
    publisher = client.node.create_publisher(String, LINE_TOPIC, kept)
    for text in ("one", "two"):
        publisher.publish(String(data=text))
    bag = tmp_path / "bag"
    recorder = record(start, bag)
    client.until(lambda: len(of(contents(bag), LINE_TOPIC)) == 2)
    recorder.popen.send_signal(signal.SIGTERM)
    assert recorder.wait(WAIT_S) == 0, recorder.output
    client.node.destroy_publisher(publisher)
    assert [m.data for m in of(contents(bag), LINE_TOPIC)] == ["one", "two"]


def test_publishers_that_offer_less_are_recorded_too(
    start: Start, client: Client, tmp_path: Path
) -> None:
    poor = QoSProfile(depth=10, reliability=ReliabilityPolicy.BEST_EFFORT)
    lines = client.node.create_publisher(String, LINE_TOPIC, 10)  # not kept for late readers
    reports = client.node.create_publisher(
        msg.ExecutionReport, "plan_server/execution_reports", poor
    )
    bag = tmp_path / "bag"
    recorder = record(start, bag)

    def both() -> bool:
        lines.publish(String(data="line"))
        reports.publish(msg.ExecutionReport(agent="poor", state=int(ReportState.ALIVE)))
        found = contents(bag)
        return bool(of(found, LINE_TOPIC)) and bool(of(found, "execution_reports"))

    client.until(both)
    recorder.interrupt()
    assert recorder.wait(WAIT_S) == 0, recorder.output
    client.node.destroy_publisher(lines)
    client.node.destroy_publisher(reports)
    assert {m.agent for m in of(contents(bag), "execution_reports")} == {"poor"}
    assert "is recorded as its publishers offer it" in recorder.output


def test_a_recording_without_a_server_says_so_and_ends_in_time(
    start: Start, client: Client, tmp_path: Path
) -> None:
    recorder = record(start, tmp_path / "bag", "--server", "/lab/absent", "--duration", "1")
    assert recorder.wait(WAIT_S) == 0, recorder.output
    assert "waits for the plan server /lab/absent; Ctrl-C ends it" in recorder.output
    assert "The plan server /lab/absent was not there." in recorder.output
    assert contents(tmp_path / "bag") == []


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (["{}"], 1, "exists: a bag is recorded to a new folder"),
        (["{}/bag.mcap"], 2, "is the name of a file: a bag is recorded to a folder"),
        (["{}/bag", "--server", "a b"], 1, "'a b' cannot be the name of a node"),
        (["{}/bag", "--duration", "-1"], 2, "-1.0 is not in the range"),
        (["/proc/bag"], 1, "cannot record to /proc/bag: No such file or directory"),
    ],
)
def test_what_cannot_be_recorded_gets_one_sentence(
    start: Start, tmp_path: Path, arguments: list[str], status: int, words: str
) -> None:
    words_given = [argument.format(tmp_path) for argument in arguments]
    recorder = start("scripts/timely-llm", "trace", "record", *words_given)
    assert recorder.wait(WAIT_S) == status
    assert recorder.output.startswith("timely-llm: ")
    assert words in recorder.output
    assert len(recorder.output.splitlines()) == 1
    assert not list(tmp_path.iterdir())


def test_the_executable_needs_a_folder(start: Start) -> None:
    node = start("recorder")
    assert node.wait(WAIT_S) == 1
    assert node.output == ("recorder: parameter output must name a folder that does not exist\n")


def test_the_benchmark_counts_what_was_lost() -> None:
    (row,) = rows((500.0,), 1.0)
    assert (row["messages"], row["lost"]) == (500, 0)
    assert row["messages_per_s"] > 0
    assert row["cpu_share"] > 0
