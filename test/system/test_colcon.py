"""The package built by colcon, away from the source tree. `make test-colcon` runs these."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from action_msgs.msg import GoalStatus

from test.system.conftest import ros_environment
from test.system.ros_client import Client
from timely_llm.core.request import ErrorCode

pytestmark = [pytest.mark.colcon, pytest.mark.timeout(900)]

SOURCES = Path(__file__).resolve().parents[2]


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
    """The package in a colcon workspace of its own."""

    def __init__(self, workspace: Path) -> None:
        self._workspace = workspace
        self._environment = with_ros_of(sys.prefix)
        self.prefix = workspace / "install" / "timely_llm"
        build: list[str | Path] = [sys.executable, "-m", "colcon"]
        build += ["--log-base", workspace / "log", "build", "--paths", SOURCES]
        build += ["--build-base", workspace / "build", "--install-base", workspace / "install"]
        build += ["--event-handlers", "console_direct+", "--cmake-args", "-DBUILD_TESTING=OFF"]
        build += [f"-DPython3_EXECUTABLE={sys.executable}"]
        subprocess.run(build, check=True, cwd=workspace, env=self._environment)

    def _sourced(self, command: str) -> list[str]:
        setup = shlex.quote(str(self._workspace / "install" / "setup.sh"))
        return ["sh", "-c", f". {setup} && exec {command}"]

    def python(self, code: str) -> str:
        """Return what a program prints that runs in the sourced workspace."""
        done = subprocess.run(
            self._sourced(f"python3 -c {shlex.quote(code)}"),
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
        process = subprocess.Popen(self._sourced(command), cwd=self._workspace, env=environment)
        try:
            yield
        finally:
            process.terminate()
            process.wait(30)


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
