"""Plans written by hand, sent to a real server by every way in."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from rcl_interfaces.srv import SetParameters
from rclpy.parameter import Parameter

from test.system.conftest import Start
from test.system.ros_client import Client, serving
from test.system.test_record import contents
from timely_llm import msg, srv
from timely_llm.core.request import ErrorCode
from timely_llm.experiments.recorded.score import score
from timely_llm.ros.client.plan import PlanClient, PlanClientError, SkillFailed
from timely_llm.traces.files import read_trace

WAIT_S = 30.0
PATROL, PATIENT_FILE = (Path(__file__).with_name(f"{n}.yaml") for n in ("patrol", "patient"))
GIVEN = {"engine": "simulated", "skill_sets": f"[{PATIENT_FILE},{PATROL}]"}
PLAN = "2{tp();}mf(50);->False;"
"""No example of the skill set says that."""


@pytest.fixture(scope="module")
def server(start: Start, domain: int) -> Iterator[Client]:
    with serving(start, Client, domain, accept_plans=True, **GIVEN) as made:
        yield made


@pytest.fixture
def robot(server: Client, domain: int) -> Iterator[PlanClient]:
    with PlanClient("robot", domain=domain, find_s=WAIT_S) as made:
        yield made


def test_a_plan_written_by_hand_is_executed(robot: PlanClient) -> None:
    made: list[str] = []
    plan = robot.submit("", plan=PLAN)
    done = plan.execute({}, otherwise=lambda call: made.append(str(call)), timeout_s=WAIT_S)
    assert made == ["tp()", "tp()", "mf(50)"]
    assert (done.plan, done.value, done.epochs) == (PLAN, False, 1)
    result = robot.result_of(plan.request_id)
    assert (result.given, result.generated_tokens) == (True, 0)


def test_a_value_that_a_skill_returns_is_waited_for(server: Client, domain: int) -> None:
    made: list[str] = []

    def turn(angle: int) -> str:
        made.append(f"tc({angle})")
        return "a cat"

    with PlanClient("waiter", "patient", domain=domain, find_s=WAIT_S) as client:
        done = client.execute(
            "", {"tc": turn}, timeout_s=WAIT_S,
            otherwise=lambda call: made.append(str(call)), plan="mf(10);tc(90);tp();tc(45);",
        )  # fmt: skip
    assert made == ["mf(10)", "tc(90)", "tp()", "tc(45)"]
    assert [call.value for call in done.calls] == [None, "a cat", None, "a cat"]


def test_a_failure_is_no_reason_for_a_plan_of_the_model(robot: PlanClient) -> None:
    made: list[str] = []

    def stuck(distance: int) -> None:
        raise SkillFailed("a wheel is stuck")

    with pytest.raises(PlanClientError, match="is not replaced by one of the model's") as raised:
        robot.execute("Look.", {"mf": stuck}, otherwise=made.append, plan="tp();mf(50);tp();")
    assert raised.value.code is ErrorCode.EXECUTION_FAILED
    assert list(map(str, made)) == ["tp()"]


def test_a_plan_with_a_fault_reaches_no_robot(robot: PlanClient, server: Client) -> None:
    with pytest.raises(PlanClientError, match="unknown skill 'fly'") as raised:
        robot.execute("Look.", {}, otherwise=print, plan="mf(50);fly();", request_id="faulty")
    assert raised.value.code is ErrorCode.MALFORMED_PLAN
    server.plan(server.goal("sound", given_plan=PLAN))
    server.until(lambda: any(segment.final for segment in server.of("sound")))
    assert server.of("faulty") == []


def test_every_way_in_takes_given_plans_and_marks_them(server: Client) -> None:
    results: list[msg.PlanResult] = []
    requests: list[msg.PlanRequest] = []
    heard = [
        server.node.create_subscription(msg.PlanResult, "plan_server/results", results.append, 10),
        server.node.create_subscription(
            msg.PlanRequest, "plan_server/requests", requests.append, 10
        ),
    ]
    server.until(lambda: all(server.node.count_publishers(h.topic_name) for h in heard))
    _, result = server.plan(server.goal("by-action", given_plan=PLAN))
    assert (result.error_code, result.given, result.plan) == (0, True, PLAN)
    assert {segment.given for segment in server.feedback} == {True}
    answer = server.call(
        srv.SubmitPlan, "submit_plan", request=server.request("by-service", given_plan=PLAN)
    )
    assert answer.error_code == 0
    server.requests.publish(server.request("by-topic", given_plan=PLAN))
    server.until(lambda: {r.request_id for r in results} >= {"by-service", "by-topic"})
    server.until(lambda: {r.request_id for r in requests} >= {"by-service", "by-topic"})
    for request_id in ("by-service", "by-topic"):
        assert [r.plan for r in results if r.request_id == request_id] == [PLAN]
        assert all(r.given for r in results if r.request_id == request_id)
        assert [r.given_plan for r in requests if r.request_id == request_id] == [PLAN]
        assert all(segment.given for segment in server.of(request_id))
    for one in heard:
        server.node.destroy_subscription(one)


def test_the_parameter_is_fixed_while_the_server_is_active(server: Client) -> None:
    parameter = Parameter("accept_plans", value=False).to_parameter_msg()
    answer = server.call(SetParameters, "set_parameters", parameters=[parameter])
    assert "can be set only while the node is not configured" in answer.results[0].reason


def test_ask_sends_a_plan_and_says_that_it_was_written_by_hand(
    server: Client, start: Start, domain: int
) -> None:
    words = (("--plan", PLAN), ("--json", "--plan", "mf(50);"), ("--plan", "mf(50);fly();"))
    beside = [start("scripts/timely-llm", "ask", "--domain", str(domain), *more) for more in words]
    for process in beside:
        process.wait(WAIT_S)
    asked, as_json, faulty = beside
    assert asked.popen.returncode == 0, asked.output
    lines = asked.output.splitlines()
    assert len(lines) == 5
    assert all(line.endswith("written by hand") for line in lines), lines
    objects = list(map(json.loads, as_json.output.splitlines()))
    assert [one.get("given", one.get("result", {}).get("given")) for one in objects] == [True, True]
    assert faulty.popen.returncode == 1
    assert "unknown skill 'fly'" in faulty.output
    assert "Traceback" not in faulty.output


@pytest.mark.extended
def test_a_recorded_given_plan_is_replayed_as_one(
    server: Client, start: Start, domain: int, tmp_path: Path
) -> None:
    bag = tmp_path / "bag"
    recorder = start("scripts/timely-llm", "trace", "record", str(bag))
    # The recorder subscribes to this one last: when it hears it, the server knows its others.
    server.until(lambda: any(topic == "stats" for topic, _ in contents(bag)))
    result = server.plan(server.goal("kept", given_plan=PLAN, task=""))[1]
    assert result.given
    recorder.stop()
    trace = read_trace(bag)
    (job,) = trace.jobs
    notes = " ".join(score(bag).notes)
    assert "1 plan was written by hand, not by a model" in notes
    assert (job.given, job.plan, job.task) == (True, PLAN, "given")
    replayed = start(
        "scripts/timely-llm", "trace", "replay", str(bag), "--live", "--skill-set", str(PATROL)
    )
    replayed.wait(WAIT_S)
    assert replayed.popen.returncode == 0, replayed.output
    assert "1 plan was written by hand" in replayed.output
