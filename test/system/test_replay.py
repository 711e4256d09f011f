"""`timely-llm trace replay --live` beside a real server, and the recording of it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from test.experiments.workloads import job
from test.system.conftest import Process, Start
from test.system.ros_client import Client, serving
from timely_llm.core.request import ExecutionReport, ReportState
from timely_llm.experiments.recorded.score import score
from timely_llm.ros.client.node import ClientNode
from timely_llm.traces.files import read_trace, write_trace
from timely_llm.traces.model import Conversation, Job, Trace
from timely_llm.traces.recordings.bags import bag_messages

WAIT_S = 40.0
PATIENT = Path(__file__).with_name("patient.yaml")
PATROL = Path(__file__).with_name("patrol.yaml")
SERVER = {
    "engine": "simulated", "pace": "millisecond", "stats_period_s": 0.1, "publish_steps": "true",
    "skill_sets": f"[{PATROL},config/skill_sets/arm.yaml]",
}  # fmt: skip
"""It answers every task of a drone with `mf(50);tc(90);tp();mf(50);->True;`."""


@pytest.fixture(scope="module")
def client(start: Start, domain: int) -> Iterator[Client]:
    with serving(start, Client, domain, **SERVER) as made:
        made.wait_for_server()
        made.until_listed({})
        yield made


def workload(path: Path, *jobs: Job) -> str:
    write_trace(Trace("small", "", jobs), path)
    return str(path)


def talk(name: str, arrival_s: float, **fields: Any) -> Conversation:
    """Return a conversation with an answer of at most the server's length.

    Its service level holds on a busy machine too.
    """
    patient = {"ttft_s": 60.0, "tpot_s": 0.5, **fields}
    return Conversation(name, arrival_s, f"person-{name}", 20, 12, **patient)


def replay(start: Start, file: str, *arguments: str, **options: Any) -> Process:
    return start(
        "scripts/timely-llm", "trace", "replay", file, "--live", "--wait", "30",
        *arguments, **options,
    )  # fmt: skip


def recorded_by(client: Client, recorder: Process) -> bool:
    """Return whether the recorder hears all topics of the server."""
    topics = ("requests", "segments", "results", "execution_reports", "stream_chunks", "stats")
    heard = (client.node.get_subscriptions_info_by_topic(f"/plan_server/{t}") for t in topics)
    names = ({info.node_name for info in infos} for infos in heard)
    return " stats" in recorder.output and all("recorder" in " ".join(found) for found in names)


def brief(name: str, arrival_s: float, task: str) -> Job:
    """Return a job that keeps its robot busy for a second."""
    return job(name, arrival_s, task=task, seconds=(0.3, 0.2, 0.3, 0.2))


@pytest.mark.extended
def test_the_last_reports_of_a_node_reach_every_reader(
    start: Start, client: Client, domain: int, tmp_path: Path
) -> None:
    recorder = start("scripts/timely-llm", "trace", "record", str(tmp_path / "day"))
    client.until(lambda: recorded_by(client, recorder))
    reports = [ExecutionReport("r", "robot", ReportState.FINISHED, index) for index in range(20)]

    def send() -> None:
        node = ClientNode("plan_server", "", domain, lambda _: None)
        client.until(lambda: node._reports.get_subscription_count() == 2)
        for report in reports:
            node.report(report)
        node.close()

    for _ in range(4):
        send()
    recorder.interrupt()
    assert recorder.wait(WAIT_S) == 0, recorder.output
    messages = bag_messages(tmp_path / "day", pytest.fail)
    heard = [m for m in messages if m.channel.topic == "/plan_server/execution_reports"]
    assert len(heard) == 80


@pytest.mark.extended
@pytest.mark.parametrize("by", ["action", "topic"])
def test_a_replay_and_its_recording_have_the_same_outcome(
    start: Start, client: Client, tmp_path: Path, by: str
) -> None:
    jobs = [brief(f"{task}-{n}", 5.0 + 0.2 * n, task) for n in range(3) for task in ("1", "2")]
    jobs.append(replace(brief("patient", 5.5, "3"), skill_set="patient"))
    jobs.append(replace(brief("boat", 5.5, "4"), skill_set="boat"))
    file = workload(tmp_path / "small.jsonl", *jobs)
    recorder = start("scripts/timely-llm", "trace", "record", str(tmp_path / "day"))
    client.until(lambda: recorded_by(client, recorder))
    process = replay(
        start, file, "--by", by, "--skill-set", str(PATIENT), "--json", str(tmp_path / "run.json"),
    )  # fmt: skip
    assert process.wait(WAIT_S) == 0, process.output
    recorder.interrupt()
    assert recorder.wait(WAIT_S) == 0, recorder.output
    run = json.loads((tmp_path / "run.json").read_text())
    (row,) = run["rows"]
    assert (row["requests"], row["share_served"]) == (7, pytest.approx(6 / 7))
    assert [(r["task"], r["requests"], r["share_served"]) for r in run["task_rows"]] == [
        ("1", 3, 1.0), ("2", 3, 1.0), ("3", 1, 0.0),
    ]  # fmt: skip
    assert 0.0 <= row["late_p50_ms"] <= row["late_p99_ms"] <= row["late_max_ms"]
    assert run["setup"]["results"] == "6 NONE, 1 UNKNOWN_SKILL_SET"
    assert any("skill set 'boat'" in note for note in run["notes"])
    recorded = score(tmp_path / "day")
    assert [(r["task"], r["requests"], r["share_served"]) for r in recorded.task_rows] == [
        (r["task"], r["requests"], r["share_served"]) for r in run["task_rows"]
    ]
    for measure in ("utility", "response_s", "waiting_s"):
        assert recorded.rows[0][measure] == pytest.approx(row[measure], abs=0.3)
    executed = [s for s in recorded.timelines[0].spans if s.kind == "executing"]
    assert sum(span.label == "mf(50);" for span in executed) == 12
    assert recorded.timelines[0].steps
    assert client.listed() == {}


@pytest.mark.extended
@pytest.mark.parametrize("by", ["action", "topic"])
def test_conversations_are_replayed_recorded_and_reported(
    start: Start, client: Client, tmp_path: Path, by: str
) -> None:
    talks = (talk("a", 5.0), talk("b", 5.1, text="Where am I?"), talk("c", 5.4, tpot_s=1e-5),
             talk("machine", 5.5, deadline_s=60.0, weight=100.0))  # fmt: skip
    jobs = (brief("d", 5.2, "1"),) if by == "topic" else ()
    write_trace(Trace("both", "", jobs, talks), tmp_path / "both.jsonl")
    recorder = start("scripts/timely-llm", "trace", "record", str(tmp_path / "day"))
    client.until(lambda: recorded_by(client, recorder))
    process = replay(
        start, str(tmp_path / "both.jsonl"), "--by", by, "--json", str(tmp_path / "run.json")
    )
    assert process.wait(WAIT_S) == 0, process.output
    recorder.interrupt()
    assert recorder.wait(WAIT_S) == 0, recorder.output
    run = json.loads((tmp_path / "run.json").read_text())
    (row,) = run["rows"]
    assert run["setup"]["results"] == f"{4 + len(jobs)} NONE"
    assert (row["conversations"], row["share_answered"]) == (4, 1.0)
    assert (row["attainment"], row["rt_attainment"]) == (0.75, 1.0)
    assert (row["requests"], row["share_served"]) == (len(jobs), 1.0 if jobs else None)
    assert row["late_max_ms"] >= 0.0 and not run["notes"]
    document = score(tmp_path / "day")
    for name in ("conversations", "share_answered", "attainment", "requests", "share_served"):
        assert document.rows[0][name] == row[name]
    assert document.rows[0]["ttft_p95_s"] == pytest.approx(row["ttft_p95_s"], abs=0.3)
    assert not any("not in the recording" in note for note in document.notes)
    heard = {s.request for s in document.timelines[0].spans if s.kind == "listening"}
    assert len(heard) == 3, "a machine's answer has no listener"
    again = read_trace(tmp_path / "day")
    assert [one.output_tokens for one in again.conversations] == [12] * 4
    assert client.listed() == {}


def test_an_interrupt_cancels_what_is_in_work(start: Start, client: Client, tmp_path: Path) -> None:
    jobs = [job(f"{n}", float(60 * (n // 3)), seconds=(60.0,)) for n in range(6)]
    process = replay(start, workload(tmp_path / "long.jsonl", *jobs))
    client.until(lambda: len(client.listed()) == 3)
    process.interrupt()
    assert process.wait(WAIT_S) == 130
    assert "results: 3 CANCELED" in process.output
    assert "3 were not asked any more" in process.output
    assert process.output.endswith("timely-llm: ended by SIGINT; nothing is left running\n")
    assert "Traceback" not in process.output
    client.until_listed({})


def test_a_server_that_stops_ends_the_replay(start: Start, domain: int, tmp_path: Path) -> None:
    alone = {"ROS_DOMAIN_ID": str(domain + 101)}
    server = start("plan_server", **SERVER, environment=alone)
    jobs = (brief("now", 0.0, "1"), brief("later", 600.0, "1"))
    file = workload(tmp_path / "a.mcap", *jobs)
    process = replay(start, file, environment=alone)
    watcher = Client(domain + 101)
    watcher.wait_for_action()
    watcher.until(lambda: bool(watcher.stats) and watcher.stats[-1].ended == 1)
    watcher.close()
    server.stop()
    assert process.wait(WAIT_S) == 1
    words = "the server /plan_server has stopped: 1 of 2 requests were not asked"
    assert words in process.output


def test_without_a_server_or_without_live_it_says_so(start: Start, tmp_path: Path) -> None:
    file = workload(tmp_path / "small.jsonl", brief("a", 0.0, "1"))
    for arguments, status, words in (
        (["--live", "--wait", "0.5"], 1, "no plan server /plan_server answered within"),
        ([], 2, "replay needs --live and a running server: in virtual time"),
    ):
        process = start(
            "scripts/timely-llm", "trace", "replay", file, *arguments,
            environment={"ROS_DOMAIN_ID": "101"},
        )  # fmt: skip
        assert process.wait(WAIT_S) == status
        assert words in process.output
        assert len(process.output.splitlines()) == 1
