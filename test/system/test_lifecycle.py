"""The life cycle: what a server does in each state, and how its parameters change."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from action_msgs.msg import GoalStatus
from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus
from lifecycle_msgs.msg import Transition
from lifecycle_msgs.srv import ChangeState, GetState
from rcl_interfaces.srv import SetParameters
from rclpy.parameter import Parameter
from rclpy.qos import ReliabilityPolicy

from test.system.conftest import EXECUTORS, Process, Start
from test.system.ros_client import FIND, PATIENT, Client
from timely_llm import srv
from timely_llm.core.request import ErrorCode
from timely_llm.resources import resource

DRONE = resource("config/skill_sets/drone.yaml")


class Manager:
    """Leads one server through its life."""

    def __init__(self, server: Process, client: Client) -> None:
        self.server = server
        self.client = client
        self.health: list[DiagnosticStatus] = []
        client.node.create_subscription(DiagnosticArray, "/diagnostics", self._on_health, 10)

    def _on_health(self, array: DiagnosticArray) -> None:
        self.health += array.status

    def change(self, transition: str) -> bool:
        request = Transition(id=getattr(Transition, f"TRANSITION_{transition.upper()}"))
        success: bool = self.client.call(ChangeState, "change_state", transition=request).success
        return success

    @property
    def state(self) -> str:
        label: str = self.client.call(GetState, "get_state").current_state.label
        return label

    def set(self, name: str, value: Any) -> str:
        """Set a parameter; return why it was refused."""
        parameter = Parameter(name, value=value).to_parameter_msg()
        answer = self.client.call(SetParameters, "set_parameters", parameters=[parameter])
        reason: str = answer.results[0].reason
        return reason

    def code(self, **fields: Any) -> ErrorCode:
        """Ask for a plan; return how it ended."""
        return ErrorCode(self.client.plan(self.client.goal(**fields))[1].error_code)

    def until_healthy(self, level: bytes, words: str) -> None:
        self.health.clear()
        self.client.until(lambda: any(h.level == level and words in h.message for h in self.health))


@pytest.fixture(params=EXECUTORS)
def managed(start: Start, domain: int, request: pytest.FixtureRequest) -> Iterator[Manager]:
    skill_sets = [Path(__file__).with_name("patient.yaml"), DRONE]
    made = PATIENT | {
        "autostart": False, "executor": request.param, "drain_timeout_s": 0.5,
        "skill_sets": f"[{', '.join(map(str, skill_sets))}]",
    }  # fmt: skip
    server = start("plan_server", **made)
    client = Client(domain)
    client.wait_for_action()
    yield Manager(server, client)
    client.close()
    server.stop()
    assert "Traceback" not in server.output


def test_before_it_is_active_a_server_says_so(managed: Manager) -> None:
    client = managed.client
    assert managed.state == "unconfigured"
    _, result = client.plan(client.goal())
    assert result.error_code == ErrorCode.INACTIVE
    assert result.error_msg == "the server is not configured: configure and activate it first"
    answer = client.call(srv.SubmitPlan, "submit_plan", request=client.request())
    assert answer.error_code == ErrorCode.INACTIVE
    answer = client.call(srv.RegisterSkillSet, "register_skill_set", yaml="")
    assert answer.error_code == ErrorCode.INACTIVE
    answer = client.call(srv.CancelRequest, "cancel_request", request_id="any")
    assert (answer.canceled, "not configured" in answer.error_msg) == (False, True)
    assert client.listed() == {}
    managed.until_healthy(DiagnosticStatus.WARN, "the server is unconfigured")
    assert managed.change("configure")
    assert managed.code(skill_set="patient") is ErrorCode.INACTIVE
    managed.until_healthy(DiagnosticStatus.WARN, "the server is inactive")


def test_parameters_can_be_set_until_it_is_configured(managed: Manager) -> None:
    assert "policy must be one of" in managed.set("policy", "best")
    assert "read-only" in managed.set("autostart", True)
    assert managed.set("slo_classes", ["voice:rate=8", "voice:rate=9"]) == ""
    assert not managed.change("configure")
    assert managed.state == "unconfigured"
    managed.client.until(lambda: "names a service level twice" in managed.server.output)
    assert managed.set("slo_classes", [""]) == ""
    assert managed.change("configure")
    assert "can be set only while the node is not configured" in managed.set("policy", "fcfs")
    assert managed.change("activate")
    assert managed.code(task=FIND) is ErrorCode.NONE
    managed.until_healthy(DiagnosticStatus.OK, "serving")
    assert managed.change("deactivate")
    assert managed.change("cleanup")
    assert managed.set("policy", "fcfs") == ""
    assert managed.change("configure")
    assert managed.change("activate")
    assert managed.code(task=FIND) is ErrorCode.NONE


def test_no_message_names_a_file_a_model_or_an_option_of_the_engine(
    managed: Manager, tmp_path: Path
) -> None:
    victim = tmp_path / "victim"
    victim.write_text("mine")
    for state in ("configure", "cleanup", ""):
        for name, value in (
            ("event_log", str(victim)),
            ("model", str(tmp_path)),
            ("engine", "vllm"),
            ("engine_args", ["trust_remote_code=true"]),
            ("engine_process", True),
            ("dtype", "float16"),
            ("device", "cuda"),
            ("threads", 2),
            ("pace", f"measured:{victim}"),
            ("skill_sets", [str(victim)]),
        ):
            assert managed.set(name, value) == f"Trying to set a read-only parameter: {name}."
        assert not state or managed.change(state)
    assert managed.change("configure")
    assert managed.change("activate")
    assert managed.code(task=FIND) is ErrorCode.NONE
    assert victim.read_text() == "mine"


def test_deactivation_lets_plans_finish_for_a_while(managed: Manager) -> None:
    client = managed.client
    assert managed.change("configure")
    assert managed.change("activate")
    handle = client.send(client.goal("stuck", skill_set="patient"))
    result = handle.get_result_async()
    client.until_listed({"stuck": "blocked"})
    assert managed.change("deactivate")
    assert not result.done()
    assert managed.code(skill_set="patient") is ErrorCode.INACTIVE
    ended = client.result(result)
    assert ended.result.error_code == ErrorCode.SHUTTING_DOWN
    assert ended.status == GoalStatus.STATUS_ABORTED
    assert managed.change("activate")
    client.send(client.goal("again", skill_set="patient"))
    client.until_listed({"again": "blocked"})


def test_a_server_that_is_shut_down_ends(managed: Manager) -> None:
    assert managed.change("configure")
    assert managed.change("inactive_shutdown")
    assert managed.server.wait(30) == 0


def test_quality_of_service_can_be_overridden(start: Start, domain: int) -> None:
    override = {"qos_overrides./plan_server/stats.publisher.reliability": "best_effort"}
    server = start("plan_server", **PATIENT, **override)
    client = Client(domain)
    client.wait_for_action()
    [found] = client.node.get_publishers_info_by_topic("/plan_server/stats")
    assert found.qos_profile.reliability == ReliabilityPolicy.BEST_EFFORT
    [found] = client.node.get_publishers_info_by_topic("/plan_server/segments")
    assert found.qos_profile.reliability == ReliabilityPolicy.RELIABLE
    client.close()
    server.stop()
