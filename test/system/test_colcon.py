"""The package built by colcon, away from the source tree. `make test-colcon` runs these."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from xml.etree import ElementTree

import pytest
from action_msgs.msg import GoalStatus

from test.system.conftest import Start, ros_environment
from test.system.ros_client import Client
from timely_llm.core.request import ErrorCode

pytestmark = [pytest.mark.colcon, pytest.mark.timeout(900)]

SOURCES = Path(__file__).resolve().parents[2]
MANIFEST = ElementTree.parse(SOURCES / "package.xml").getroot()
KINDS = ("msg", "srv", "action")


HAS_RCLCPP = any(
    (Path(prefix) / "share/ament_index/resource_index/packages/rclcpp_action").exists()
    for prefix in [sys.prefix, *os.environ.get("AMENT_PREFIX_PATH", "").split(os.pathsep)]
)


def with_ros_of(prefix: str) -> dict[str, str]:
    """Return an environment in which CMake and Python take ROS from `prefix`."""
    before = {
        "AMENT_PREFIX_PATH": prefix,
        "CMAKE_PREFIX_PATH": prefix,
        "PATH": f"{prefix}/bin",
    }
    joined = {k: os.pathsep.join(filter(None, [v, os.environ.get(k)])) for k, v in before.items()}
    return {**os.environ, **joined}


class Overlay:
    """The package in a colcon workspace of its own.

    Args:
        workspace: an empty folder.
        packages: folders of further packages.
        options: of CMake.
    """

    def __init__(
        self, workspace: Path, packages: Sequence[Path] = (), options: Sequence[str] = ()
    ) -> None:
        self._workspace = workspace
        self._environment = with_ros_of(sys.prefix)
        self.prefix = workspace / "install" / "timely_llm"
        build: list[str | Path] = [sys.executable, "-m", "colcon"]
        build += ["--log-base", workspace / "log", "build", "--paths", SOURCES, *packages]
        build += ["--build-base", workspace / "build", "--install-base", workspace / "install"]
        build += ["--event-handlers", "console_direct+", "--cmake-args", "-DBUILD_TESTING=OFF"]
        build += [f"-DPython3_EXECUTABLE={sys.executable}", *options]
        subprocess.run(build, check=True, cwd=workspace, env=self._environment)

    def sourced(self, command: str) -> list[str]:
        setup = shlex.quote(str(self._workspace / "install" / "setup.sh"))
        return ["sh", "-c", f". {setup} && exec {command}"]

    def python(self, code: str) -> str:
        """Return what a program prints that runs in the sourced workspace."""
        done = subprocess.run(
            self.sourced(f"python3 -c {shlex.quote(code)}"),
            cwd=self._workspace,
            env=self._environment,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    @contextmanager
    def running(self, executable: str, domain: int) -> Iterator[None]:
        """Run an executable as `ros2 run` would, in the sourced workspace."""
        command = shlex.quote(str(self.prefix / "lib" / "timely_llm" / executable))
        environment = self._environment | ros_environment(domain)
        process = subprocess.Popen(self.sourced(command), cwd=self._workspace, env=environment)
        try:
            yield
        finally:
            process.terminate()
            process.wait(30)

    def output_of(self, command: str, domain: int) -> str:
        """Return what a program prints that runs in the sourced workspace and ends well."""
        environment = self._environment | ros_environment(domain)
        done = subprocess.run(
            self.sourced(command), cwd=self._workspace, env=environment,
            stdout=subprocess.PIPE, text=True, timeout=120,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout
        return done.stdout


@pytest.fixture(scope="module")
def interfaces(tmp_path_factory: pytest.TempPathFactory) -> Overlay:
    """Build the interfaces alone, and the client in C++ where ROS has rclcpp."""
    packages = [SOURCES / "examples" / "cpp"] if HAS_RCLCPP else []
    workspace = tmp_path_factory.mktemp("interfaces")
    return Overlay(workspace, packages, ["-DTIMELY_LLM_INTERFACES_ONLY=ON"])


@pytest.fixture(scope="module")
def overlay(tmp_path_factory: pytest.TempPathFactory) -> Overlay:
    """Build the package once for all tests."""
    return Overlay(tmp_path_factory.mktemp("workspace"))


def test_python_takes_the_package_from_the_overlay(overlay: Overlay) -> None:
    module = Path(overlay.python("import timely_llm; print(timely_llm.__file__)"))
    assert module.is_relative_to(overlay.prefix)


@pytest.mark.parametrize("kind", ["msg", "srv", "action"])
def test_every_interface_can_be_imported_and_shown(overlay: Overlay, kind: str) -> None:
    names = [file.stem for file in SOURCES.glob(f"{kind}/*.{kind}")]
    overlay.python(f"from timely_llm.{kind} import {', '.join(names)}")
    for name in names:
        assert (overlay.prefix / "share" / "timely_llm" / kind / f"{name}.{kind}").exists()


@pytest.mark.parametrize(
    "relative", ["config/plan_server.yaml", "config/skill_sets", "launch", "models/tiny_planner"]
)
def test_shared_files_are_found_in_the_overlay(overlay: Overlay, relative: str) -> None:
    find = f"from timely_llm.resources import resource; print(resource('{relative}'))"
    assert Path(overlay.python(find)) == overlay.prefix / "share" / "timely_llm" / relative


@pytest.mark.parametrize(
    "name", ["plan_server", "robot_fleet", "talkers", "recorder", "timely-llm"]
)
def test_ros2_run_finds_the_executable(overlay: Overlay, name: str) -> None:
    assert os.access(overlay.prefix / "lib" / "timely_llm" / name, os.X_OK)


def test_the_overlay_serves_a_plan(overlay: Overlay, domain: int) -> None:
    with overlay.running("plan_server", domain):
        client = Client(domain)
        try:
            client.wait_for_server()
            status, result = client.plan(client.goal())
        finally:
            client.close()
    assert status == GoalStatus.STATUS_SUCCEEDED
    assert result.error_code == ErrorCode.NONE
    assert result.plan


def test_the_interfaces_alone_bring_nothing_else(interfaces: Overlay) -> None:
    imports = "; ".join(
        f"from timely_llm.{kind} import {file.stem}"
        for kind in KINDS for file in SOURCES.glob(f"{kind}/*.{kind}")
    )  # fmt: skip
    interfaces.python(imports)
    assert list(interfaces.prefix.rglob("*/timely_llm/core")) == []
    assert not (interfaces.prefix / "lib" / "timely_llm").exists()
    share = interfaces.prefix / "share" / "timely_llm"
    assert (share / "action" / "Plan.action").exists()
    assert not (share / "launch").exists() and not (share / "models").exists()
    headers = interfaces.prefix / "include" / "timely_llm" / "timely_llm"
    assert (headers / "action" / "plan.hpp").exists()


def test_the_interfaces_alone_need_no_python_package_but_those_of_ros() -> None:
    def requirements(tag: str) -> set[str]:
        return {(element.text or "") for element in MANIFEST.iter(tag)}

    needed = (
        requirements("buildtool_depend") | requirements("build_depend") | requirements("depend")
    )
    assert needed == {
        "ament_cmake",
        "rosidl_default_generators",
        "action_msgs",
        "builtin_interfaces",
    }


@pytest.mark.skipif(not HAS_RCLCPP, reason="no rclcpp here: PyPI has no such wheel")
def test_a_client_in_cpp_prints_the_segments_of_a_plan(
    interfaces: Overlay, start: Start, domain: int
) -> None:
    server = start("plan_server", engine="simulated")
    ask = interfaces.prefix.parent / "timely_llm_cpp_client/lib/timely_llm_cpp_client/ask"
    task = shlex.quote("Scene: [chair]\nTask: [A] Find the cat and go to it.")
    lines = interfaces.output_of(f"{shlex.quote(str(ask))} drone {task}", domain).splitlines()
    assert lines[0].startswith("segment 0: ")
    segments = dict(line.split(": ", 1) for line in lines if line.startswith("segment "))
    assert lines[-1] == f"plan: {''.join(segments.values())}"
    server.stop()
