"""The launch files, run by the real launch system. `make test-launch` says if it is missing."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("launch_ros", reason="launch_ros comes with ROS 2: PyPI has no such wheel")

from launch import LaunchDescription, LaunchService
from launch.actions import (
    EmitEvent,
    IncludeLaunchDescription,
    RegisterEventHandler,
)
from launch.event_handlers import OnProcessIO
from launch.events import Shutdown
from launch.events.process import ProcessIO
from launch.launch_description_sources import (
    PythonLaunchDescriptionSource,
    get_launch_description_from_python_launch_file,
)

from test.system.conftest import EXECUTORS
from timely_llm.resources import resource

FILES = ("plan_server", "demo", "servers")


def path_of(name: str) -> str:
    return str(resource(f"launch/{name}.launch.py"))


def run(
    name: str, until: str | None = None, kill: str | None = None, **arguments: str
) -> tuple[int, str]:
    """Run a launch file until its processes end or print `until`; return status and output.

    The first process that prints `kill` is killed, and `until` counts after that.
    """
    argv = [f"{argument}:={value}" for argument, value in arguments.items()]
    output: list[str] = []
    kills, counts = [kill] if kill else [], 0

    def on_output(event: ProcessIO) -> EmitEvent | None:
        nonlocal counts
        output.append(event.text.decode())
        if kills and kills[0] in "".join(output):
            kills.clear()
            counts = len(output)
            os.kill(event.pid, signal.SIGKILL)
        if not kills and until is not None and until in "".join(output[counts:]):
            return EmitEvent(event=Shutdown(reason="the test has seen enough"))
        return None

    service = LaunchService(argv=argv, noninteractive=True)
    service.include_launch_description(
        LaunchDescription(
            [
                RegisterEventHandler(OnProcessIO(on_stdout=on_output, on_stderr=on_output)),
                IncludeLaunchDescription(
                    PythonLaunchDescriptionSource(path_of(name)),
                    launch_arguments=arguments.items(),
                ),
            ]
        )
    )
    return service.run(), "".join(output)


@pytest.fixture(autouse=True)
def own_domain(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    monkeypatch.setenv("ROS_DOMAIN_ID", str(1 + os.getpid() % 100))
    monkeypatch.setenv("ROS_AUTOMATIC_DISCOVERY_RANGE", "LOCALHOST")
    monkeypatch.setenv("ROS_LOG_DIR", str(tmp_path))
    yield


@pytest.mark.parametrize("name", FILES)
def test_every_argument_is_described_and_has_a_default(name: str) -> None:
    description = get_launch_description_from_python_launch_file(path_of(name))
    arguments = description.get_launch_arguments()
    assert arguments
    for argument in arguments:
        assert argument.description, argument.name
        assert argument.default_value is not None, argument.name


def test_the_server_starts_with_the_parameters_of_its_file() -> None:
    status, output = run("plan_server", until="ready:", engine="simulated")
    assert status == 0
    assert "ready: deadline policy, simulated engine" in output


def test_a_server_that_is_killed_is_started_again() -> None:
    status, output = run("plan_server", "ready:", "ready:", engine="simulated", respawn="true")
    assert status == 0
    assert output.count("ready:") == 2


def test_a_server_that_cannot_serve_is_not_started_again() -> None:
    _, output = run("plan_server", engine="simulated", policy="nonsense", respawn="true")
    assert output.count("parameter policy must be one of") == 1


def test_an_argument_goes_before_the_parameter_file() -> None:
    _, output = run("plan_server", until="ready:", engine="simulated", policy="stream")
    assert "ready: stream policy" in output


def test_an_argument_that_is_not_given_is_taken_from_the_users_parameter_file(
    tmp_path: Path,
) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("/**: {ros__parameters: {engine: simulated, policy: fcfs}}", encoding="utf-8")
    _, output = run("plan_server", until="ready:", params_file=str(file))
    assert "ready: fcfs policy, simulated engine" in output


def test_the_life_cycle_can_be_left_to_others() -> None:
    arguments = {"engine": "simulated", "autostart": "false", "executor": EXECUTORS[-1]}
    status, output = run("plan_server", until="unconfigured:", **arguments)
    assert status == 0
    assert "unconfigured: waits for `ros2 lifecycle set`" in output


@pytest.mark.parametrize("name", ("plan_server", "demo"))
def test_an_engine_without_a_model_needs_no_process_of_its_own(name: str) -> None:
    _, output = run(name, engine="simulated", engine_process="true")
    assert "the engine simulated computes nothing: it needs no process" in output
    assert "Traceback" not in output


def test_the_engine_runs_in_a_process_of_its_own() -> None:
    arguments = {"engine": "transformers", "engine_process": "true"}
    status, output = run("plan_server", until="ready:", **arguments)
    assert status == 0
    assert "ready: deadline policy, transformers engine" in output


def test_skill_sets_are_given_as_a_list() -> None:
    drone = resource("config/skill_sets/drone.yaml")
    _, output = run("plan_server", until="ready:", engine="simulated", skill_sets=f"['{drone}']")
    assert "skill set 'drone'" in output
    assert "skill set 'arm'" not in output


def test_a_value_that_is_not_allowed_ends_the_server_with_one_sentence() -> None:
    status, output = run("plan_server", engine="simulated", policy="no_such_policy")
    assert "plan_server: parameter policy must be one of" in output
    assert "Traceback" not in output
    assert status == 0  # launch itself went well


def test_several_servers_join_a_dispatcher() -> None:
    status, output = run("servers", until="/s2/plan_server joins", engine="simulated")
    assert status == 0
    assert "ready: most-worth dispatcher" in output
    assert "ready: deadline policy, simulated engine" in output
    assert "s3.plan_server" not in output


def test_an_argument_of_the_dispatcher_goes_before_its_parameter_file() -> None:
    arguments = {"engine": "simulated", "servers": "1", "dispatcher": "round-robin"}
    _, output = run("servers", until="round-robin dispatcher", namespace="lab", **arguments)
    assert "ready: round-robin dispatcher" in output or "configured" in output


@pytest.mark.parametrize("number", ["0", "65", "two"])
def test_an_impossible_number_of_servers_is_refused(
    number: str, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    status, _ = run("servers", servers=number)
    assert status == 1
    words = f"servers must be a number from 1 to 64, not '{number}'"
    assert words in caplog.text + "".join(capsys.readouterr())


def test_the_demo_ends_when_its_robots_are_done() -> None:
    status, output = run("demo", engine="simulated", robots="2", duration_s="3", seed="1")
    assert status == 0
    assert "2 robots ask for 3 s" in output
    assert "already registered" not in output  # each robot's node keeps its own name


def test_the_demo_ends_when_robots_and_people_are_done() -> None:
    status, output = run(
        "demo", engine="simulated", robots="1", conversations="2", duration_s="3", seed="1"
    )
    assert status == 0
    assert "1 robots ask for 3 s" in output
    assert "2 people ask for 3 s" in output
    assert "Traceback" not in output


def test_the_demo_ends_when_its_people_cannot_begin() -> None:
    _, output = run("demo", engine="simulated", conversations="-1", duration_s="600")
    assert "talkers: parameter people must be from 1 to 512" in output


@pytest.mark.parametrize("name", FILES)
def test_a_file_of_parameters_that_is_not_there_is_refused(
    name: str, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    status, _ = run(name, params_file="/no/such.yaml")
    assert status == 1
    words = "params_file must name a file of ROS parameters, not '/no/such.yaml'"
    assert words in caplog.text + "".join(capsys.readouterr())


@pytest.mark.parametrize(
    ("name", "wrong", "meant"),
    [
        ("plan_server", {"polcy": "fcfs"}, "policy"),
        ("demo", {"skill-sets": "[]"}, "skill_sets"),
        ("demo", {"duration": "3"}, "duration_s"),
        ("servers", {"server": "2"}, "servers"),
    ],
)
def test_a_misspelt_argument_is_logged_with_the_nearest(
    name: str,
    wrong: dict[str, str],
    meant: str,
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
) -> None:
    run(name, until="ready:", engine="simulated", **wrong)
    (given,) = wrong
    words = f"the argument '{given}' is unknown and ignored: is '{meant}' meant?"
    assert words in caplog.text + "".join(capsys.readouterr())


def test_the_demo_ends_with_the_table_of_what_its_robots_and_people_got() -> None:
    arguments = {"robots": "2", "conversations": "2", "duration_s": "4", "seed": "1"}
    status, output = run("demo", engine="simulated", **arguments)
    assert status == 0
    assert "robot_fleet: first" in output
    assert "talkers: 0 tokens recomputed" in output
    for head in ("utility", "stalls"):
        assert head in output
