"""The keys of package.xml are keys of rosdep, and bring nothing that pip would have to install."""

from __future__ import annotations

from xml.etree import ElementTree

from timely_llm.core.requirements import REQUIRED
from timely_llm.resources import resource

# rosdep/python.yaml of ros/rosdistro 8468e88ccd52, 22 August 2026: keys with packages of Debian
# and Ubuntu. Keys that end in -pip make `rosdep install` call pip, and bloom takes no such package.
SYSTEM_KEYS = {
    "python3-click",
    "python3-hypothesis",
    "python3-jinja2",
    "python3-matplotlib",
    "python3-numpy",
    "python3-packaging",
    "python3-psutil",
    "python3-pydantic",
    "python3-pytest",
    "python3-pytest-timeout",
    "python3-pytest-xdist",
    "python3-regex",
    "python3-rich",
    "python3-ruamel.yaml",
    "python3-yaml",
}
# The same commit: packages that are released into each of jazzy, kilted, lyrical and rolling.
ROS_PACKAGES = {
    "action_msgs",
    "ament_cmake",
    "ament_cmake_pytest",
    "ament_index_python",
    "builtin_interfaces",
    "diagnostic_msgs",
    "launch",
    "launch_ros",
    "launch_testing",
    "launch_testing_ros",
    "lifecycle_msgs",
    "rcl_interfaces",
    "rclpy",
    "rosidl_default_generators",
    "rosidl_default_runtime",
    "std_msgs",
}
KEY_OF = {"pyyaml": "python3-yaml"}


def keys(kind: str) -> set[str]:
    tags = ElementTree.parse(resource("package.xml")).getroot()
    return {tag.text or "" for tag in tags if tag.tag.endswith(kind)}


def test_every_key_is_known() -> None:
    unknown = keys("depend") - SYSTEM_KEYS - ROS_PACKAGES
    assert not unknown, f"not a key of rosdep, or not yet compared with its lists: {unknown}"


def test_rosdep_installs_what_every_installation_needs_and_no_extra() -> None:
    named = {key for key in keys("exec_depend") if key.startswith("python3-")}
    assert named == {KEY_OF.get(name, f"python3-{name}") for name in REQUIRED}
