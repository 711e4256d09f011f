"""Servers that are killed and frozen: processes, actors of Ray, and plan servers over ROS."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from test.cluster.front import CLUSTERS, Front, Recorded
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

ROS = "ros"
needs_ros = pytest.mark.skipif(find_spec("rclpy") is None, reason="ROS is not installed")
KINDS = [*CLUSTERS, pytest.param(ROS, marks=needs_ros)]
OTHER = resource("config/skill_sets/drone.yaml").read_text().replace("name: drone", "name: other")


@pytest.fixture(scope="module", params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def shared(kind: str) -> Iterator[Recorded]:
    if kind == ROS:
        from test.cluster.ros_front import RosFront

        made: Recorded = RosFront(replicas=2, pace="none")
    else:
        made = Front(cluster=kind, replicas=2, pace="none")
    yield made
    made.close()


@pytest.fixture
def front(shared: Recorded) -> Recorded:
    """Two servers that serve nothing, whatever the last test did to them."""
    shared.until(lambda: shared.complete() and shared.relay.serving == 0)
    return shared


def plan(key: str, skill_set: str = "drone", **given: object) -> PlanRequest:
    return PlanRequest(key, f"agent of {key}", skill_set, "look for the cat", **given)  # type: ignore[arg-type]


def ended_well(front: Recorded, *keys: str) -> bool:
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


def test_plans_and_answers_of_all_replicas_come_whole_and_in_order(front: Recorded) -> None:
    plans = [f"plan {number}" for number in range(8)]
    for key in plans:
        front.relay.submit(plan(key))
    talk = StreamRequest("talk", "Ada", (ChatMessage("user", "Tell me a story."),))
    front.relay.submit(talk)
    front.until(lambda: set(front.servers_of(*plans)) >= set(front.names))
    front.until(lambda: ended_well(front, "talk", *plans))
    for key in plans:
        result = front.results[key]
        assert isinstance(result, PlanResult)
        assert [one.index for one in front.segments[key]] == list(range(result.segments))
        assert "".join(one.text for one in front.segments[key]) == result.plan
    answer = front.results["talk"]
    assert isinstance(answer, StreamResult)
    assert "".join(one.text for one in front.chunks["talk"]) == answer.text
    front.until(lambda: front.served >= len(plans) + 1)


def test_a_request_is_canceled_at_its_replica(front: Recorded) -> None:
    front.relay.submit(plan("canceled", closed_loop=True))
    front.until(lambda: front.segments["canceled"])
    done = front.relay.cancel("canceled")
    front.until(done.done)
    assert done.result() is True
    assert front.results["canceled"].error_code is ErrorCode.CANCELED


def test_what_a_replica_refuses_is_refused(front: Recorded) -> None:
    long = "look for the cat " * 400
    front.relay.submit(PlanRequest("too long", "rover", "drone", long))
    front.until(lambda: "too long" in front.results)
    result = front.results["too long"]
    assert result.error_code is ErrorCode.INVALID_REQUEST
    assert result.error_msg.startswith("the prompt has ")


def test_requests_of_a_killed_replica_go_on_and_it_comes_back_empty(front: Recorded) -> None:
    keys = [f"closed {number}" for number in range(8)]
    for key in keys:
        front.relay.submit(plan(key, closed_loop=True))
    front.until(lambda: all(front.segments[key] for key in keys))
    # On a busy machine one server may have all of them.
    first = front.relay.server_of(keys[0])
    assert first is not None
    pid = front.pids[first]
    mine = [key for key in keys if front.relay.server_of(key) == first]
    os.kill(pid, signal.SIGKILL)
    front.until(lambda: first not in front.relay.servers)
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
    front.until(lambda: front.complete())
    assert front.pids[first] != pid
    again = [f"again {number}" for number in range(8)]
    for key in again:
        front.relay.submit(plan(key))
    front.until(lambda: set(front.servers_of(*again)) >= set(front.names))
    front.until(lambda: ended_well(front, *again))


def finished(one: Segment) -> ExecutionReport:
    value = "True" if one.blocking else ""
    return ExecutionReport(
        one.request_id, one.agent, ReportState.FINISHED, one.index, 0.1, value, one.epoch
    )


def test_a_frozen_replica_is_lost_then_killed_and_replaced(
    front: Recorded, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if kind == ROS:
        pytest.skip("a dispatcher neither starts nor kills a server")
    monkeypatch.setattr(replicas, "KILL_S", 3.0)
    second = front.names[1]
    pid = front.pids[second]
    os.kill(pid, signal.SIGSTOP)
    keys = [f"frozen {number}" for number in range(6)]
    for key in keys:
        front.relay.submit(plan(key))
    front.until(lambda: second not in front.relay.servers)
    assert alive(pid)
    front.until(lambda: ended_well(front, *keys))
    front.until(lambda: front.complete())
    assert front.pids[second] != pid
    front.until(lambda: not alive(pid))
    assert any("it gave no sign of life for 3 s" in line for line in front.log)


def test_a_replica_that_was_frozen_for_a_moment_goes_on(front: Recorded) -> None:
    second = front.names[1]
    pid = front.pids[second]
    os.kill(pid, signal.SIGSTOP)
    front.until(lambda: second not in front.relay.servers)
    os.kill(pid, signal.SIGCONT)
    front.until(lambda: front.complete())
    assert front.pids[second] == pid


def test_a_skill_set_reaches_all_replicas_and_one_that_is_started_again(front: Recorded) -> None:
    registered = front.relay.skill_sets.register(OTHER)
    front.until(registered.done)
    assert registered.result()[0] == "other"

    front.until(lambda: front.complete("other"))
    first = front.names[0]
    pid = front.pids[first]
    os.kill(pid, signal.SIGKILL)
    front.until(lambda: front.pids.get(first, pid) != pid)
    front.until(lambda: front.complete("other"))
    front.relay.submit(plan("of another set", "other"))
    front.until(lambda: ended_well(front, "of another set"))
    forgotten = front.relay.unregister("other")
    front.until(forgotten.done)
    assert forgotten.exception() is None
    front.until(lambda: all("other" not in one.skill_sets for one in front.relay.views()))


def test_a_replica_that_cannot_begin_says_why() -> None:
    with pytest.raises(TimelyError, match=r"^replica-1: .*no_such_module"):
        Front(replicas=1, engine="no_such_module:Engine")


def test_each_replica_writes_an_event_log_of_its_own(tmp_path: Path) -> None:
    Front(replicas=2, event_log=str(tmp_path / "run.jsonl")).close()
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["run.replica-1.jsonl", "run.replica-2.jsonl"]
