"""The package built by colcon, away from the source tree. `make test-colcon` runs these."""

import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = [pytest.mark.colcon, pytest.mark.timeout(900)]

SOURCES = Path(__file__).resolve().parents[2]
Run = Callable[[str], str]


def environment(prefix: str) -> dict[str, str]:
    """Return an environment in which CMake and Python take ROS from `prefix`."""
    before = {
        "AMENT_PREFIX_PATH": prefix,
        "CMAKE_PREFIX_PATH": prefix,
        "PATH": f"{prefix}/bin",
    }
    joined = {k: os.pathsep.join(filter(None, [v, os.environ.get(k)])) for k, v in before.items()}
    return {**os.environ, **joined}


@pytest.fixture(scope="module")
def in_overlay(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Build the package with colcon; return what runs a command line in the overlay."""
    workspace = tmp_path_factory.mktemp("workspace")
    colcon: list[str | Path] = [
        sys.executable,
        "-m",
        "colcon",
        "--log-base",
        workspace / "log",
        "build",
    ]
    colcon += ["--paths", SOURCES, "--build-base", workspace / "build"]
    colcon += ["--install-base", workspace / "install", "--event-handlers", "console_direct+"]
    colcon += ["--cmake-args", "-DBUILD_TESTING=OFF", f"-DPython3_EXECUTABLE={sys.executable}"]
    ros = environment(sys.prefix)
    subprocess.run(colcon, check=True, cwd=workspace, env=ros)

    def run(command: str) -> str:
        script = f". {shlex.quote(str(workspace))}/install/setup.sh && {command}"
        done = subprocess.run(
            ["sh", "-c", script], cwd=workspace, env=ros, capture_output=True, text=True
        )
        assert done.returncode == 0, f"{command}: {done.stderr}"
        return done.stdout.strip()

    return run


def python(code: str) -> str:
    return f"python3 -c {shlex.quote(code)}"


def test_python_takes_the_package_from_the_overlay(in_overlay: Run) -> None:
    module = in_overlay(python("import timely_llm; print(timely_llm.__file__)"))
    prefix = in_overlay('echo "${AMENT_PREFIX_PATH%%:*}"')
    assert Path(module).is_relative_to(prefix)
    assert not Path(module).is_relative_to(SOURCES)


@pytest.mark.parametrize("kind", ["msg", "srv", "action"])
def test_every_interface_can_be_imported_and_shown(in_overlay: Run, kind: str) -> None:
    names = [file.stem for file in SOURCES.glob(f"{kind}/*.{kind}")]
    in_overlay(python(f"from timely_llm.{kind} import {', '.join(names)}"))
    shared = in_overlay(f'ls "${{AMENT_PREFIX_PATH%%:*}}/share/timely_llm/{kind}"').split()
    assert {f"{name}.{kind}" for name in names} <= set(shared)


def test_a_message_goes_through_the_middleware(in_overlay: Run) -> None:
    code = """
from rclpy.serialization import deserialize_message, serialize_message
from timely_llm.msg import Segment
raw = serialize_message(Segment(request_id="a", text="g('cat');"))
print(deserialize_message(raw, Segment).text)
"""
    assert in_overlay(python(code)) == "g('cat');"


@pytest.mark.parametrize(
    "relative", ["config/plan_server.yaml", "config/skill_sets/drone.yaml", "launch", "models"]
)
def test_shared_files_are_found_in_the_overlay(in_overlay: Run, relative: str) -> None:
    found = in_overlay(
        python(f"from timely_llm.resources import resource; print(resource('{relative}'))")
    )
    share = in_overlay('echo "${AMENT_PREFIX_PATH%%:*}"') + "/share/timely_llm"
    assert found == f"{share}/{relative}"


@pytest.mark.parametrize("name", ["plan_server", "robot_fleet", "timely-llm"])
def test_ros2_run_would_find_the_executable(in_overlay: Run, name: str) -> None:
    in_overlay(f'test -x "${{AMENT_PREFIX_PATH%%:*}}/lib/timely_llm/{name}"')
