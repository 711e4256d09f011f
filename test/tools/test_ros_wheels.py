"""Which wheels of ROS a build takes."""

import subprocess
import sys

import pytest

from tools import ros_wheels

KNOWN = list(ros_wheels.settings()["ros-wheels"]["distributions"])


def test_jazzy_is_the_default_and_kilted_can_be_chosen() -> None:
    assert ros_wheels.chosen({}) == "jazzy"
    assert ros_wheels.chosen({"ROS_WHEELS": ""}) == "jazzy"
    assert ros_wheels.chosen({"ROS_WHEELS": "kilted"}) == "kilted"


def test_a_sourced_ros_needs_no_wheels() -> None:
    assert ros_wheels.chosen({"ROS_DISTRO": "lyrical"}) == ros_wheels.NONE
    assert ros_wheels.chosen({"ROS_DISTRO": "jazzy", "ROS_WHEELS": "none"}) == ros_wheels.NONE
    assert ros_wheels.run_requirements(ros_wheels.NONE) == []
    assert ros_wheels.build_requirements(ros_wheels.NONE) == []


@pytest.mark.parametrize(
    ("environment", "words"),
    [
        ({"ROS_WHEELS": "humble"}, "ROS_WHEELS is 'humble', but must be jazzy, kilted or none"),
        ({"ROS_WHEELS": "Jazzy"}, "ROS_WHEELS is 'Jazzy', but must be jazzy, kilted or none"),
        ({"ROS_WHEELS": "none"}, "no ROS is sourced"),
        ({"ROS_WHEELS": "jazzy", "ROS_DISTRO": "kilted"}, "must not be mixed"),
    ],
)
def test_what_cannot_be_built_for_gets_one_sentence(
    environment: dict[str, str], words: str
) -> None:
    with pytest.raises(ros_wheels.RosWheelsError, match=words):
        ros_wheels.chosen(environment)


@pytest.mark.parametrize("distribution", KNOWN)
def test_every_name_is_of_one_distribution(distribution: str) -> None:
    names = ros_wheels.run_requirements(distribution) + ros_wheels.build_requirements(distribution)
    assert all(name.startswith(f"ros-{distribution}-") for name in names)
    assert f"ros-{distribution}-rclpy" in names


def test_a_build_for_an_unknown_distribution_ends_with_the_sentence() -> None:
    command = [sys.executable, "setup.py", "--version"]
    done = subprocess.run(
        command, cwd=ros_wheels.ROOT, env={"ROS_WHEELS": "humble"}, capture_output=True, text=True
    )
    assert done.returncode == 1
    assert done.stderr.strip().startswith("ROS_WHEELS is 'humble', but must be")
