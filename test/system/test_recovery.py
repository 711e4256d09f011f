"""A server that is killed and started again with its recovery journal: real processes."""

from __future__ import annotations

import resource
import signal
import time
from pathlib import Path

import pytest
from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus

from test.system.conftest import Start
from test.system.ros_client import PATIENT, Client
from test.system.ros_talker import SLOW
from timely_llm import srv
from timely_llm.core.request import ErrorCode
from timely_llm.identity.keys import new_key
from timely_llm.ros.client.plan import PlanClient, PlanClientError, ServerLost
from timely_llm.ros.client.talk import TalkClient

pytestmark = pytest.mark.faults
WAIT_S = 60.0


def test_a_robot_goes_on_with_its_plan_at_the_server_that_was_killed(
    start: Start, domain: int, tmp_path: Path
) -> None:
    journal = tmp_path / "journal"
    parameters = PATIENT | {"client_timeout_s": 60.0, "recovery_journal": str(journal)}
    server = start("plan_server", **parameters)
    with PlanClient("rover", "patient", domain=domain, find_s=WAIT_S, recovery_s=0.0) as client:
        task = client.submit("Look.", request_id="tour")
        segments = task.segments(WAIT_S)
        text = next(segments).text
        server.popen.send_signal(signal.SIGKILL)
        with pytest.raises(ServerLost, match="died or cannot be reached"):
            list(segments)
        server = start("plan_server", **parameters)
        again = client.resume("tour")
        made = []
        for segment in again.segments(WAIT_S):
            made.append((segment.epoch, segment.index))
            text = segment.text if segment.index == 0 else text + segment.text
            again.finished(segment, value="a cat")
        assert again.result(WAIT_S).error_code is ErrorCode.NONE
        assert text == "mf(50);tc(90);tp();mf(50);->True;"
        assert made == [(0, index) for index in range(len(made))]
    server.stop()
    assert server.popen.returncode == 0
    assert "recovery journal: 1 request had not ended" in server.output
    assert b'"kind":"ended","id":"tour"' in journal.read_bytes()


@pytest.mark.parametrize(("away_s", "signs"), [(0.0, False), (4.0, False), (0.0, True)])
def test_a_robot_sees_only_a_pause_when_its_server_is_killed(
    start: Start, domain: int, tmp_path: Path, away_s: float, signs: bool
) -> None:
    parameters = PATIENT | {"client_timeout_s": 60.0, "recovery_journal": str(tmp_path / "journal")}
    key = None
    if signs:  # a server that is started again has another challenge
        key = new_key("rover", tmp_path / "keys")
        parameters |= {"agent_keys": str(key.parent), "require_auth": True}
    server = start("plan_server", **parameters)
    calls: list[str] = []

    def look(*words: object) -> str:
        nonlocal server
        server.popen.send_signal(signal.SIGKILL)
        server.popen.wait()
        time.sleep(away_s)  # shorter, and longer, than a client needs to miss its server
        server = start("plan_server", **parameters)
        calls.append("look")
        return "a cat"

    def other(*words: object) -> None:
        calls.append("other")

    with PlanClient("rover", "patient", domain=domain, find_s=WAIT_S, key_file=key) as client:
        skills = {"tc": look}
        done = client.execute("Look.", skills, otherwise=other, request_id="tour", timeout_s=WAIT_S)
        assert done.plan == "mf(50);tc(90);tp();mf(50);->True;"
        assert calls == ["other", "look", "other", "other"]
        assert client.running() == ()
    server.stop()
    assert server.popen.returncode == 0


def test_a_plan_that_no_journal_kept_is_lost_in_a_sentence(
    start: Start, domain: int, tmp_path: Path
) -> None:
    journal = tmp_path / "journal"
    parameters = PATIENT | {"client_timeout_s": 60.0}
    server = start("plan_server", **parameters, recovery_journal=str(journal))
    with PlanClient("rover", "patient", domain=domain, find_s=WAIT_S) as client:
        segments = client.submit("Look.", request_id="tour").segments(WAIT_S)
        next(segments)
        server.popen.send_signal(signal.SIGKILL)
        server.popen.wait()
        server = start("plan_server", **parameters)
        with pytest.raises(ServerLost, match="does not know the request 'tour' any more"):
            list(segments)
    server.stop()


def test_a_plan_is_lost_when_no_server_comes_in_time(
    start: Start, domain: int, tmp_path: Path
) -> None:
    parameters = PATIENT | {"recovery_journal": str(tmp_path / "journal")}
    server = start("plan_server", **parameters)
    with PlanClient("rover", "patient", domain=domain, find_s=WAIT_S, recovery_s=1.0) as client:
        segments = client.submit("Look.", request_id="tour").segments(WAIT_S)
        next(segments)
        server.popen.send_signal(signal.SIGKILL)
        with pytest.raises(ServerLost, match="died or cannot be reached"):
            list(segments)


def test_a_goal_that_is_sent_again_gets_the_result_of_the_request_that_goes_on(
    start: Start, domain: int, tmp_path: Path
) -> None:
    parameters = PATIENT | {"client_timeout_s": 60.0, "recovery_journal": str(tmp_path / "journal")}
    server = start("plan_server", **parameters)
    client = Client(domain)
    client.wait_for_action()
    goal = client.goal("tour", task="Look.", skill_set="patient", closed_loop=False)
    client.send(goal)
    client.until_listed({"tour": "blocked"})
    server.popen.send_signal(signal.SIGKILL)
    server.popen.wait()
    client.close()
    server = start("plan_server", **parameters)
    client = Client(domain)
    client.wait_for_action()
    other = client.goal("tour", task="Look twice.", skill_set="patient", closed_loop=False)
    assert client.plan(other)[1].error_code == ErrorCode.DUPLICATE_REQUEST
    handle = client.send(goal)
    with PlanClient("tester", "patient", domain=domain, find_s=WAIT_S) as robot:
        resumed = robot.resume("tour")
        for segment in resumed.segments(WAIT_S):
            resumed.finished(segment, value="a cat")
    result = client.result(handle.get_result_async()).result
    assert (result.error_code, result.plan) == (
        ErrorCode.NONE, "mf(50);tc(90);tp();mf(50);->True;",
    )  # fmt: skip
    client.close()
    server.stop()


def test_a_result_is_known_after_the_end_of_its_server(
    start: Start, domain: int, tmp_path: Path
) -> None:
    journal, plan = tmp_path / "journal", "mf(50);tc(90);tp();mf(50);->True;"
    parameters = PATIENT | {"client_timeout_s": 60.0, "recovery_journal": str(journal)}
    server = start("plan_server", **parameters)
    with PlanClient("rover", "patient", domain=domain, find_s=WAIT_S) as robot:
        task = robot.submit("Look.", request_id="tour", closed_loop=False)
        for segment in task.segments(WAIT_S):
            task.finished(segment, value="a cat")
        assert task.result(WAIT_S).plan == plan
    client = Client(domain)
    client.until(lambda: b'"kind":"ended","id":"tour"' in journal.read_bytes())
    server.popen.send_signal(signal.SIGKILL)
    server.popen.wait()
    server = start("plan_server", **parameters)
    client.wait_for_action()
    kept = client.call(srv.GetResult, "get_result", request_id="tour")
    assert (kept.state, kept.plan.plan) == (kept.PLAN, plan)
    client.close()
    server.stop()


def test_a_person_goes_on_with_a_conversation_at_the_server_that_was_killed(
    start: Start, domain: int, tmp_path: Path
) -> None:
    parameters = PATIENT | {"recovery_journal": str(tmp_path / "journal")}
    server = start("plan_server", **parameters)
    for turn in range(3):
        with TalkClient("ann", domain=domain, find_s=WAIT_S) as person:
            answer = person.converse("And then?", conversation="c", turn=turn)
            assert answer.result(WAIT_S).error_code is ErrorCode.NONE
        server.popen.send_signal(signal.SIGKILL)
        server.popen.wait()
        server = start("plan_server", **parameters)
    server.stop()


def test_an_answer_that_waited_comes_after_a_pause_and_one_that_had_begun_ends_with_a_code(
    start: Start, domain: int, tmp_path: Path
) -> None:
    journal, pace = tmp_path / "journal", tmp_path / "slower.yaml"
    slow = Path(__file__).with_name("slow.yaml").read_text()
    pace.write_text(slow.replace("base_s: 0.2", "base_s: 0.5"))
    parameters = SLOW | {"pace": f"measured:{pace}", "recovery_journal": str(journal)}
    parameters |= {"policy": "fcfs", "max_rows": 1}  # one after the other
    server = start("plan_server", **parameters)
    with (
        TalkClient("ann", domain=domain, find_s=WAIT_S) as ann,
        TalkClient("bob", domain=domain, find_s=WAIT_S) as bob,
    ):
        begun = ann.converse("Hello.", conversation="c").chunks(WAIT_S)
        assert next(begun)
        waits = bob.converse("Hello.", max_tokens=4, request_id="waits")
        end_s = time.monotonic() + WAIT_S
        while b'"id":"waits"' not in journal.read_bytes():
            assert time.monotonic() < end_s
        server.popen.send_signal(signal.SIGKILL)
        server.popen.wait()
        server = start("plan_server", **parameters)
        text = "".join(waits.chunks(WAIT_S))
        result = waits.result(WAIT_S)
        assert text and (result.text, result.generated_tokens) == (text, 4)
        with pytest.raises(PlanClientError, match="in the middle of the answer: ask again") as said:
            list(begun)
        assert said.value.code is ErrorCode.ENGINE_FAILED
    server.stop()


def test_diagnostics_show_a_journal_that_cannot_be_written(
    start: Start, domain: int, tmp_path: Path
) -> None:
    journal = tmp_path / "journal"
    server = start("plan_server", **PATIENT, recovery_journal=str(journal))
    client = Client(domain)
    statuses: list[DiagnosticStatus] = []
    client.node.create_subscription(
        DiagnosticArray, "/diagnostics", lambda array: statuses.extend(array.status), 10
    )
    client.wait_for_action()
    client.until(lambda: bool(statuses) and statuses[-1].level == DiagnosticStatus.OK)
    size = journal.stat().st_size
    resource.prlimit(server.popen.pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
    client.send(client.goal("tour", task="Look.", skill_set="patient"))
    client.until_listed({"tour": "blocked"})
    client.until(lambda: statuses[-1].level == DiagnosticStatus.ERROR)
    assert statuses[-1].message.startswith("the recovery journal ends here, and no request goes on")
    assert not journal.exists()
    resource.prlimit(server.popen.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
    client.close()
    server.stop()
