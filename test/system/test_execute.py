"""Plans of a real server, executed by a robot's callables."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from test.system.conftest import Start
from test.system.ros_client import FIND, PATIENT, Client, serving
from timely_llm import msg, srv
from timely_llm.core.request import ErrorCode
from timely_llm.resources import resource
from timely_llm.ros.client.plan import (
    Execution,
    PlanClient,
    PlanClientError,
    PlanTimeout,
    SkillFailed,
)
from timely_llm.skills.skill_set import load_skill_set

PLAN = "mf(50);tc(90);tp();mf(50);->True;"
CALLS = ["mf(50)", "tc(90)", "tp()", "mf(50)"]
WAIT_S = 30.0
DRONE = resource("config/skill_sets/drone.yaml")
PATROL = Path(__file__).with_name("patrol.yaml")
PATIENT_FILE = Path(__file__).with_name("patient.yaml")


@pytest.fixture(scope="module")
def server(start: Start, domain: int) -> Iterator[Client]:
    """A server with the plan `PLAN`; plans of `patient` wait for a value after `tc(90);`."""
    parameters = PATIENT | {"skill_sets": f"[{PATIENT_FILE},{PATROL}]"}
    with serving(start, Client, domain, **parameters) as made:
        yield made


@pytest.fixture
def client(server: Client, domain: int) -> Iterator[PlanClient]:
    with PlanClient("robot", domain=domain, find_s=WAIT_S) as made:
        yield made


@pytest.fixture
def patient(server: Client, domain: int) -> Iterator[PlanClient]:
    with PlanClient("waiter", "patient", domain=domain, find_s=WAIT_S) as made:
        yield made


class Robot:
    """Takes every call."""

    def __init__(self) -> None:
        self.made: list[str] = []

    def __call__(self, call: object) -> bool:
        self.made.append(str(call))
        return True


def test_a_plan_is_executed_call_by_call(client: PlanClient, server: Client) -> None:
    robot = Robot()
    done = client.execute("Look.", {}, otherwise=robot, timeout_s=WAIT_S)
    assert robot.made == CALLS == [str(made.call) for made in done.calls]
    assert (done.plan, done.value, done.epochs) == (PLAN, True, 1)
    assert server.listed() == {}


def test_two_plans_are_executed_at_a_time_by_two_threads(client: PlanClient) -> None:
    both = threading.Barrier(2, timeout=WAIT_S)

    def run(number: int) -> list[str]:
        robot = Robot()
        client.execute(
            f"Look {number}.", {"tp": lambda: both.wait()}, otherwise=robot, timeout_s=WAIT_S
        )
        return robot.made

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(run, range(2))) == [["mf(50)", "tc(90)", "mf(50)"]] * 2


def test_a_skill_that_fails_leads_to_a_new_plan(client: PlanClient) -> None:
    robot, failures = Robot(), iter([True, False])

    def take_picture() -> None:
        if next(failures):
            raise SkillFailed("the lens is dirty")

    done = client.execute("Look.", {"tp": take_picture}, otherwise=robot, timeout_s=WAIT_S)
    assert done.epochs == 2
    assert robot.made == ["mf(50)", "tc(90)", "mf(50)", "tc(90)", "mf(50)"]
    assert [made.error for made in done.calls if made.error] == ["the lens is dirty"]


def test_a_skill_that_always_fails_ends_the_request(client: PlanClient) -> None:
    def stuck(distance: int) -> None:
        raise OSError("a wheel is stuck")

    with pytest.raises(PlanClientError, match="segment 0 failed: OSError: a wheel is") as raised:
        client.execute("Look.", {"mf": stuck}, otherwise=Robot(), timeout_s=WAIT_S)
    assert raised.value.code is ErrorCode.EXECUTION_FAILED
    assert [made.epoch for made in raised.value.calls] == [0, 1, 2]


def test_a_plan_is_canceled_from_another_thread(patient: PlanClient, server: Client) -> None:
    robot, entered, seen = Robot(), threading.Event(), []

    def turn(angle: int, *, execution: Execution) -> str:
        entered.set()
        seen.append(execution.wait(WAIT_S))
        return "too late"

    plan = patient.submit("Look.", request_id="to-cancel")
    canceled: list[bool] = []

    def cancel() -> None:
        assert entered.wait(WAIT_S)
        canceled.append(plan.cancel(WAIT_S))

    thread = threading.Thread(target=cancel)
    thread.start()
    with pytest.raises(PlanClientError) as raised:
        plan.execute({"tc": turn}, otherwise=robot, timeout_s=WAIT_S)
    thread.join(WAIT_S)
    assert raised.value.code is ErrorCode.CANCELED
    assert (robot.made, seen, canceled) == (["mf(50)"], [True], [True])
    assert server.listed() == {}


def test_the_value_of_a_blocking_skill_lets_the_plan_go_on(patient: PlanClient) -> None:
    robot = Robot()

    def turn(angle: int) -> str:
        robot.made.append(f"tc({angle})")
        return "a cat"

    done = patient.execute("Look.", {"tc": turn}, otherwise=robot, timeout_s=WAIT_S)
    assert [made.value for made in done.calls] == [None, "a cat", None, None]
    assert (robot.made, done.value) == (CALLS, True)


def test_skills_are_checked_before_anything_is_asked(server: Client, domain: int) -> None:
    requests: list[msg.PlanRequest] = []
    heard = server.node.create_subscription(
        msg.PlanRequest, "plan_server/requests", requests.append, 10
    )
    with PlanClient("careful", domain=domain, find_s=WAIT_S) as client:
        with pytest.raises(PlanClientError, match="skills of 'drone' have no callable: tc, tp"):
            client.execute("Look.", {"mf": print}, timeout_s=WAIT_S)
        client.submit("Look.", request_id="asked").result(WAIT_S)
    server.until(lambda: bool(requests))
    assert [request.request_id for request in requests if request.agent == "careful"] == ["asked"]
    server.node.destroy_subscription(heard)


def test_the_server_returns_its_skill_sets(
    client: PlanClient, patient: PlanClient, server: Client, domain: int
) -> None:
    assert client.skill_set() == load_skill_set(PATROL)
    assert client.skill_set("patient") == patient.skill_set() == load_skill_set(PATIENT_FILE)
    answer = server.call(srv.GetSkillSet, "get_skill_set", name="drone")
    assert (answer.error_code, answer.yaml) == (0, PATROL.read_text())
    with pytest.raises(PlanClientError, match="'boat': registered are drone, patient") as raised:
        client.skill_set("boat")
    assert raised.value.code is ErrorCode.UNKNOWN_SKILL_SET
    with (
        PlanClient("robot", "boat", domain=domain) as other,
        pytest.raises(PlanClientError, match="unknown skill set 'boat'"),
    ):
        other.execute("Row.", {}, otherwise=print)


def test_a_result_comes_without_reading_segments(client: PlanClient, server: Client) -> None:
    result = client.submit("Look.").result(WAIT_S)
    assert (result.error_code, result.plan) == (ErrorCode.NONE, PLAN)
    task = client.submit("Look.")
    first = next(task.segments(WAIT_S))
    task.finished(first, 0.1)
    assert task.result(WAIT_S).plan == PLAN
    assert server.listed() == {}


def test_a_result_that_waits_for_a_value_says_so(patient: PlanClient) -> None:
    task = patient.submit("Look.")
    with pytest.raises(PlanClientError, match=r"the plan waits for the value of tc\(\): execute"):
        task.result(WAIT_S)
    assert task.cancel(WAIT_S)


SLOW = """
import time
from timely_llm.ros.client.plan import PlanClient

def drive(distance):
    print("driving", flush=True)
    time.sleep(60)
    print("arrived", flush=True)

with PlanClient("interrupted", find_s=30.0) as client:
    client.execute("Look.", {"mf": drive}, otherwise=print)
"""


def test_ctrl_c_in_a_skill_cancels_the_request(
    start: Start, server: Client, tmp_path: Path
) -> None:
    script = tmp_path / "slow.py"
    script.write_text(SLOW)
    process = start(str(script))
    server.until(lambda: "driving" in process.output)
    assert len(server.listed()) == 1
    process.interrupt()
    assert process.wait(WAIT_S) != 0
    assert process.output.rstrip().endswith("KeyboardInterrupt")
    assert "arrived" not in process.output
    server.until_listed({})


@pytest.fixture(scope="module")
def embedded(start: Start, server: Client, domain: int) -> Iterator[tuple[Any, PlanClient]]:
    """A server of its own namespace with the embedded model, which is impatient."""
    process = start(
        "plan_server", "-r", "__ns:=/impatient", constrained=True, answer_timeout_s=1.0,
        skill_sets=f"[{DRONE},{PATIENT_FILE}]",
    )  # fmt: skip
    with PlanClient("robot", namespace="/impatient", domain=domain, find_s=90.0) as made:
        yield process, made


@pytest.mark.parametrize("found", [False, True])
def test_conditions_of_the_embedded_model_are_decided(
    embedded: tuple[Any, PlanClient], found: bool
) -> None:
    robot = Robot()
    done = embedded[1].execute(FIND, {"s": lambda name: found}, otherwise=robot, timeout_s=WAIT_S)
    assert done.plan.startswith("?s('cat')|s('cup'){l('Yes');->True;")
    seen = [str(made.call) for made in done.calls if made.call.name == "s"]
    assert seen[:2] == (["s('cat')"] if found else ["s('cat')", "s('cup')"])
    assert ("l('Yes')" in robot.made) is found
    assert done.value is found


def test_a_blocking_skill_that_takes_too_long_ends_the_request(
    embedded: tuple[Any, PlanClient], domain: int
) -> None:
    reasons: list[str] = []

    def slow(*arguments: object, execution: Execution) -> str:
        execution.wait(WAIT_S)
        reasons.append(execution.reason)
        return "too late"

    with PlanClient("waiter", "patient", namespace="/impatient", domain=domain) as client:
        skills = dict.fromkeys(("mf", "tc", "tp"), slow)
        with pytest.raises(PlanClientError, match="did not report") as raised:
            client.execute("Look around.", skills, timeout_s=WAIT_S)
    assert raised.value.code is ErrorCode.NO_ANSWER
    assert reasons == [str(raised.value)]
    assert len(raised.value.calls) == 1


def test_a_server_that_is_killed_is_not_waited_for(embedded: tuple[Any, PlanClient]) -> None:
    process, client = embedded
    robot = Robot()

    def kill(*arguments: object) -> bool:
        process.popen.kill()
        process.popen.wait(10)
        return True

    skills = dict.fromkeys(load_skill_set(DRONE).skills, kill)
    with pytest.raises(PlanTimeout):
        client.execute(FIND, skills, otherwise=robot, timeout_s=1.0)
