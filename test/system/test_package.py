"""What package.xml, pyproject.toml and the installed package say must agree."""

import contextlib
import os
import re
import runpy
import sys
import tomllib
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import yaml

import timely_llm
import timely_llm.entry
from timely_llm.core.requirements import ros_distribution
from timely_llm.resources import resource
from tools import ros_wheels

ROOT = Path(__file__).resolve().parents[2]
MANIFEST = ElementTree.parse(ROOT / "package.xml").getroot()
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXECUTABLES = sorted(path.name for path in (ROOT / "scripts").iterdir())


def test_the_version_and_the_license_are_the_same_everywhere() -> None:
    assert MANIFEST.findtext("version") == PROJECT["version"] == timely_llm.__version__
    assert metadata.version("timely_llm") == timely_llm.__version__
    assert MANIFEST.findtext("license") == PROJECT["license"]


def test_package_xml_names_the_ros_packages_that_the_wheel_needs() -> None:
    needed = set(ros_wheels.settings()["ros-wheels"]["run"])
    named = {(tag.text or "").replace("_", "-") for tag in MANIFEST if tag.tag.endswith("depend")}
    # Which middleware runs is the user's choice where ROS is installed.
    assert needed - {"rmw-fastrtps-cpp"} <= named


def test_the_lock_names_versions_only() -> None:
    for file in ROOT.glob("constraints*.txt"):
        pins = [line for line in file.read_text().splitlines() if not line.startswith("#")]
        assert pins
        assert all(re.fullmatch(r"[a-z0-9.-]+==[0-9][\w.!]*", pin) for pin in pins), file


def test_each_distribution_has_a_lock_of_its_own_and_the_common_one_names_none() -> None:
    for distribution in ros_wheels.settings()["ros-wheels"]["distributions"]:
        pins = (ROOT / f"constraints-{distribution}.txt").read_text()
        for name in ros_wheels.build_requirements(distribution):
            assert f"\n{name}==" in pins
        for name in ros_wheels.run_requirements(distribution):
            assert f"\n{name}==" in pins
    assert "\nros-" not in (ROOT / "constraints.txt").read_text()


def test_the_installed_package_needs_the_wheels_of_the_distribution_that_runs() -> None:
    needed = {re.split("[<>= ;]", line)[0] for line in metadata.requires("timely_llm") or ()}
    assert {name for name in needed if name.startswith("ros-")} == {
        f"ros-{ros_distribution()}-{name}" for name in ros_wheels.settings()["ros-wheels"]["run"]
    }


@pytest.mark.parametrize("name", EXECUTABLES)
def test_an_executable_runs_a_function_that_exists(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = ROOT / "scripts" / name
    assert os.access(script, os.X_OK)
    called = []
    monkeypatch.setattr(timely_llm.entry, "main", lambda: called.append("timely-llm"))
    monkeypatch.setattr(timely_llm.entry, "node", called.append)
    with pytest.raises(SystemExit) if name != "timely-llm" else contextlib.nullcontext():
        runpy.run_path(str(script), run_name="__main__")
    assert called == [name]


def test_a_node_has_an_executable_of_its_name() -> None:
    assert {*timely_llm.entry.NODES, "timely-llm"} == set(EXECUTABLES)
    for name in timely_llm.entry.NODES:
        assert find_spec(f"timely_llm.ros.{name}") is not None


@pytest.mark.parametrize(("node", "room"), [("plan_server", "server"), ("dispatcher", "dispatch")])
def test_the_parameter_file_has_every_parameter_with_its_default(node: str, room: str) -> None:
    setup = pytest.importorskip(f"timely_llm.ros.{room}.setup")
    file = yaml.safe_load(resource(f"config/{node}.yaml").read_text(encoding="utf-8"))
    declared = {parameter.name: parameter.default for parameter in setup.PARAMETERS}
    assert file["/**"]["ros__parameters"] == declared


def test_ros_tools_find_the_installed_package(monkeypatch: pytest.MonkeyPatch) -> None:
    packages = pytest.importorskip("ament_index_python.packages")
    if "AMENT_PREFIX_PATH" not in os.environ:
        monkeypatch.setenv("AMENT_PREFIX_PATH", sys.prefix)
    prefix = Path(packages.get_package_prefix("timely_llm"))
    share = Path(packages.get_package_share_directory("timely_llm"))
    assert [name for name in EXECUTABLES if not (prefix / "lib/timely_llm" / name).exists()] == []
    for shared in ("launch", "config/skill_sets", "models", "action/Plan.action", "package.xml"):
        assert (share / shared).exists(), shared
