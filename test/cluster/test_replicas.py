"""Replicas that are killed, frozen and replaced: as processes, and as actors of Ray."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from test.cluster.front import CLUSTERS, Front
from timely_llm.cluster import replicas
from timely_llm.core.errors import TimelyError
from timely_llm.core.request import (
    ChatMessage,
    ErrorCode,
    ExecutionReport,
    PlanRequest,
    PlanResult,
    ReportState,
    StreamRequest,
    StreamResult,
)
from timely_llm.core.segment import Segment
from timely_llm.resources import resource

ALL = ["replica-1", "replica-2"]
OTHER = resource("config/skill_sets/drone.yaml").read_text().replace("name: drone", "name: other")


@pytest.fixture(scope="module", params=CLUSTERS)
def cluster(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def shared(cluster: str) -> Iterator[Front]:
    made = Front(cluster=cluster, replicas=2, pace="none")
    yield made
    made.close()


@pytest.fixture
def front(shared: Front) -> Front:
    """Two replicas that serve nothing, whatever the last test did to them."""
    shared.until(lambda: shared.complete(len(ALL)) and shared.relay.serving == 0)
    return shared


def plan(key: str, skill_set: str = "drone", **given: object) -> PlanRequest:
    return PlanRequest(key, f"agent of {key}", skill_set, "look for the cat", **given)  # type: ignore[arg-type]


def ended_well(front: Front, *keys: str) -> bool:
    return all(key in front.results for key in keys) and {
        front.results[key].error_code for key in keys
    } == {ErrorCode.NONE}


def alive(pid: int) -> bool:
    """Return whether a process runs; one that was not reaped yet does not."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"


def test_plans_and_answers_of_all_replicas_come_whole_and_in_order(front: Front) -> None:
    plans = [f"plan {number}" for number in range(8)]
    for key in plans:
        front.relay.submit(plan(key))
    talk = StreamRequest("talk", "Ada", (ChatMessage("user", "Tell me a story."),))
    front.relay.submit(talk)
    front.until(lambda: set(front.servers_of(*plans)) >= set(ALL))
    front.until(lambda: ended_well(front, "talk", *plans))
    for key in plans:
        result = front.results[key]
        assert isinstance(result, PlanResult)
        assert [one.index for one in front.segments[key]] == list(range(result.segments))
        assert "".join(one.text for one in front.segments[key]) == result.plan
    answer = front.results["talk"]
    assert isinstance(answer, StreamResult)
    assert "".join(one.text for one in front.chunks["talk"]) == answer.text
    front.until(lambda: sum(one["ended"] for one in front.replicas.statistics) >= len(plans) + 1)


def test_a_request_is_canceled_at_its_replica(front: Front) -> None:
    front.relay.submit(plan("canceled", closed_loop=True))
    front.until(lambda: front.segments["canceled"])
    done = front.relay.cancel("canceled")
    front.until(done.done)
    assert done.result() is True
    assert front.results["canceled"].error_code is ErrorCode.CANCELED


def test_what_a_replica_refuses_is_refused(front: Front) -> None:
    long = "look for the cat " * 400
    front.relay.submit(PlanRequest("too long", "rover", "drone", long))
    front.until(lambda: "too long" in front.results)
    result = front.results["too long"]
    assert result.error_code is ErrorCode.INVALID_REQUEST
    assert result.error_msg.startswith("the prompt has ")


def test_requests_of_a_killed_replica_go_on_and_it_comes_back_empty(front: Front) -> None:
    keys = [f"closed {number}" for number in range(8)]
    for key in keys:
        front.relay.submit(plan(key, closed_loop=True))
    front.until(lambda: all(front.segments[key] for key in keys))
    pid = front.replicas.pids["replica-1"]
    mine = [key for key in keys if front.relay.server_of(key) == "replica-1"]
    assert mine
    os.kill(pid, signal.SIGKILL)
    front.until(lambda: "replica-1" not in front.relay.servers)
    reported: set[Segment] = set()

    def done() -> bool:
        for one in [one for key in keys for one in front.segments[key]]:
            if one not in reported and one.request_id not in front.results:
                reported.add(one)
                front.relay.report(finished(one))
        return ended_well(front, *keys)

    front.until(done)
    for key in keys:
        executed = [(one.epoch, one.index) for one in front.segments[key] if not one.final]
        assert len(set(executed)) == len(executed)
    assert all(front.segments[key][-1].epoch == 1 for key in mine)
    front.until(lambda: front.complete(len(ALL)))
    assert front.replicas.pids["replica-1"] != pid
    again = [f"again {number}" for number in range(8)]
    for key in again:
        front.relay.submit(plan(key))
    front.until(lambda: set(front.servers_of(*again)) >= set(ALL))
    front.until(lambda: ended_well(front, *again))


def finished(one: Segment) -> ExecutionReport:
    value = "True" if one.blocking else ""
    return ExecutionReport(
        one.request_id, one.agent, ReportState.FINISHED, one.index, 0.1, value, one.epoch
    )


def test_a_frozen_replica_is_lost_then_killed_and_replaced(
    front: Front, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replicas, "KILL_S", 3.0)
    pid = front.replicas.pids["replica-2"]
    os.kill(pid, signal.SIGSTOP)
    keys = [f"frozen {number}" for number in range(6)]
    for key in keys:
        front.relay.submit(plan(key))
    front.until(lambda: "replica-2" not in front.relay.servers)
    assert alive(pid)
    front.until(lambda: ended_well(front, *keys))
    front.until(lambda: front.complete(len(ALL)))
    assert front.replicas.pids["replica-2"] != pid
    front.until(lambda: not alive(pid))
    assert any("it gave no sign of life for 3 s" in line for line in front.log)


def test_a_replica_that_was_frozen_for_a_moment_goes_on(front: Front) -> None:
    pid = front.replicas.pids["replica-2"]
    os.kill(pid, signal.SIGSTOP)
    front.until(lambda: "replica-2" not in front.relay.servers)
    os.kill(pid, signal.SIGCONT)
    front.until(lambda: front.complete(len(ALL)))
    assert front.replicas.pids["replica-2"] == pid


def test_a_skill_set_reaches_all_replicas_and_one_that_is_started_again(front: Front) -> None:
    registered = front.relay.skill_sets.register(OTHER)
    front.until(registered.done)
    assert registered.result()[0] == "other"

    front.until(lambda: front.complete(len(ALL), "other"))
    pid = front.replicas.pids["replica-1"]
    os.kill(pid, signal.SIGKILL)
    front.until(lambda: front.replicas.pids.get("replica-1", pid) != pid)
    front.until(lambda: front.complete(len(ALL), "other"))
    front.relay.submit(plan("of another set", "other"))
    front.until(lambda: ended_well(front, "of another set"))
    forgotten = front.relay.unregister("other")
    front.until(forgotten.done)
    assert forgotten.exception() is None
    front.until(lambda: all("other" not in one.skill_sets for one in front.relay.views()))


def test_a_replica_that_cannot_begin_says_why(cluster: str, tmp_path: Path) -> None:
    if cluster == "ray":
        pytest.skip("one cluster of Ray in a process at a time")
    with pytest.raises(TimelyError, match=r"^replica-1: .*no_such_module"):
        Front(cluster=cluster, replicas=1, engine="no_such_module:Engine")


def test_each_replica_writes_an_event_log_of_its_own(cluster: str, tmp_path: Path) -> None:
    if cluster == "ray":
        pytest.skip("one cluster of Ray in a process at a time")
    front = Front(cluster=cluster, replicas=2, event_log=str(tmp_path / "run.jsonl"))
    front.close()
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["run.replica-1.jsonl", "run.replica-2.jsonl"]
