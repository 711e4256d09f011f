"""The count of outcomes finds what it is there to find."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import NamedTemporaryFile

import pytest

from test.system.outcomes import Attempt, Outcomes, Watch, check
from test.system.ros_client import Client
from timely_llm import msg
from timely_llm.core.events.log import FileEventLog
from timely_llm.core.events.schema import EndEvent, PlanRequestEvent
from timely_llm.robots.client.pending import Pending
from timely_llm.ros import qos

HERE = Path(__file__).parent


@pytest.fixture
def watch(domain: int) -> Iterator[Watch]:
    made = Watch(domain)
    yield made
    made.close()


def asked(request_id: str) -> PlanRequestEvent:
    return PlanRequestEvent(time.monotonic(), request_id, "rover", "Look.", 1.0, -1.0, 1.0)


def ended(request_id: str, code: str = "none", message: str = "") -> EndEvent:
    return EndEvent(time.monotonic(), request_id, code, message)


def begun(watch: Watch, folder: Path) -> Outcomes:
    made = Outcomes(watch, folder)
    made.begin("a test", True, folder)
    made.ran()
    return made


def test_a_request_without_an_end_and_one_without_a_reason_are_lost(
    watch: Watch, tmp_path: Path
) -> None:
    outcomes = begun(watch, tmp_path)
    log = FileEventLog(tmp_path / "server.jsonl")
    for request_id in ("whole", "refused", "silent", "unexplained", "seen", "reported"):
        log.write(asked(request_id))
    log.write(ended("whole"))
    log.write(ended("refused", "queue_full", "2 requests are being served"))
    log.write(ended("unexplained", "engine_failed"))
    with outcomes.hearing():
        Pending[object]("seen", "rover", Client).lose("the server died")  # type: ignore[type-var,arg-type]
    outcomes.explained("reported", "the server died")
    [attempt] = outcomes.count()
    assert attempt.lost == ["silent", "unexplained"]
    assert sorted(attempt.ends) == ["refused", "reported", "seen", "unexplained", "whole"]
    file = tmp_path / "rows"
    with pytest.raises(AssertionError, match="neither a result nor a reason"):
        check([attempt], 0, file)
    row = json.loads(file.read_text())
    assert (row["answered"], row["explained"], row["lost"]) == (1, 3, 2)


def test_a_request_that_goes_on_at_another_server_is_answered(watch: Watch, tmp_path: Path) -> None:
    outcomes = begun(watch, tmp_path)
    first, second = (FileEventLog(tmp_path / f"{name}.jsonl") for name in "ab")
    first.write(asked("tour"))
    second.write(asked("tour"))
    second.write(ended("tour"))
    [attempt] = outcomes.count()
    assert (attempt.lost, list(attempt.ends)) == ([], ["tour"])
    check([attempt], 0, None)


def test_a_part_of_a_sketch_ends_with_its_request(watch: Watch, tmp_path: Path) -> None:
    outcomes = begun(watch, tmp_path)
    log = FileEventLog(tmp_path / "server.jsonl")
    for request_id in ("tour", "tour~1-abc", "strange~name"):
        log.write(asked(request_id))
    log.write(ended("tour"))
    [attempt] = outcomes.count()
    assert (attempt.lost, list(attempt.ends)) == (["strange~name"], ["tour"])


def test_only_fault_tests_that_ran_are_counted(watch: Watch, tmp_path: Path) -> None:
    outcomes = begun(watch, tmp_path)
    outcomes.begin("not a fault", False, tmp_path)
    outcomes.ran()
    outcomes.begin("skipped", True, tmp_path)
    assert [one.test for one in outcomes.count()] == ["a test"]


LOSES = """
import time

import pytest

from timely_llm.core.events.log import FileEventLog
from timely_llm.core.events.schema import PlanRequestEvent


runs = []


@pytest.mark.faults
def test_it_loses(tmp_path):
    if runs:
        return
    log = FileEventLog(tmp_path / "server.jsonl")
    log.write(PlanRequestEvent(time.monotonic(), "tour", "rover", "Look.", 1.0, -1.0, 1.0))
    runs.append(1)
    assert not "the robot has no plan"
"""


def test_a_request_that_is_lost_in_a_first_run_fails_although_the_second_passes(
    tmp_path: Path,
) -> None:
    """The file is none that pytest collects by itself."""
    with NamedTemporaryFile("w", dir=HERE, prefix="loses_", suffix=".py") as file:
        file.write(LOSES)
        file.flush()
        rows = tmp_path / "rows"
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-m",
            "faults",
            "--outcomes",
            str(rows),
            file.name,
        ]
        ran = subprocess.run(command, cwd=HERE.parents[1], capture_output=True, text=True)
    assert ran.returncode == 1 and "RERUN" in ran.stdout
    assert sum(json.loads(line)["lost"] for line in rows.read_text().splitlines()) == 1
    assert "requests with neither a result nor a reason" in ran.stdout


def test_kv_that_an_idle_server_does_not_have_back_is_found(
    watch: Watch, domain: int, tmp_path: Path
) -> None:
    outcomes = begun(watch, tmp_path)
    client = Client(domain)
    publisher = client.node.create_publisher(msg.ServerLoad, "s1/plan_server/load", qos.reliable())
    client.until(lambda: publisher.get_subscription_count() == 1)
    busy = msg.ServedRequest(request_id="tour")
    for free, requests in ((900, []), (400, [busy]), (850, [])):
        load = msg.ServerLoad(life="one", kv_tokens=1000, free_kv_tokens=free, requests=requests)
        publisher.publish(load)
    client.until(lambda: "one" in watch.lives and watch.lives["one"].last == 150)
    client.close()
    [attempt] = outcomes.count()
    assert (attempt.leaked, attempt.servers) == (50, 1)
    with pytest.raises(AssertionError, match="tokens of KV"):
        check([attempt], 0, None)


def test_a_test_without_requests_has_nothing_lost() -> None:
    check([Attempt("a test", True, 0.0)], 0, None)
