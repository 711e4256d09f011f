"""What package.xml, pyproject.toml and the installed package say must agree."""

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
from timely_llm.resources import resource

ROOT = Path(__file__).resolve().parents[2]
MANIFEST = ElementTree.parse(ROOT / "package.xml").getroot()
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXECUTABLES = sorted(path.name for path in (ROOT / "scripts").iterdir())


def test_the_version_and_the_license_are_the_same_everywhere() -> None:
    assert MANIFEST.findtext("version") == PROJECT["version"] == timely_llm.__version__
    assert metadata.version("timely_llm") == timely_llm.__version__
    assert MANIFEST.findtext("license") == PROJECT["license"]


def test_package_xml_names_the_ros_packages_that_the_wheel_needs() -> None:
    wheels = {re.split("[<>=]", line)[0] for line in PROJECT["dependencies"]}
    needed = {name[len("ros-kilted-") :] for name in wheels if name.startswith("ros-kilted-")}
    named = {(tag.text or "").replace("_", "-") for tag in MANIFEST if tag.tag.endswith("depend")}
    # Which middleware runs is the user's choice where ROS is installed.
    assert needed - {"rmw-fastrtps-cpp"} <= named


def test_the_lock_names_versions_only() -> None:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pins = [line for line in lines if not line.startswith("#")]
    assert all(re.fullmatch(r"[a-z0-9.-]+==[0-9][\w.!]*", pin) for pin in pins)


@pytest.mark.parametrize("name", EXECUTABLES)
def test_an_executable_runs_a_function_that_exists(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = ROOT / "scripts" / name
    assert os.access(script, os.X_OK)
    [module] = re.findall(r"^from (\S+) import main$", script.read_text(), re.MULTILINE)
    assert find_spec(module) is not None
    called = []
    monkeypatch.setattr(f"{module}.main", lambda: called.append(module))
    with pytest.raises(SystemExit):
        runpy.run_path(str(script), run_name="__main__")
    assert called == [module]


def test_the_parameter_file_has_every_parameter_with_its_default() -> None:
    setup = pytest.importorskip("timely_llm.ros.plan_server_setup")
    file = yaml.safe_load(resource("config/plan_server.yaml").read_text(encoding="utf-8"))
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
