"""The container files name what there is; an engine for containers is not needed for that."""

from __future__ import annotations

import json
import re
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import yaml

import timely_llm
from timely_llm.core.requirements import EXTRAS
from timely_llm.entry import NODES

ROOT = Path(__file__).parents[1]
DOCKERFILE = (ROOT / "docker/Dockerfile").read_text()
SERVER: dict[str, Any] = yaml.safe_load((ROOT / "docker/compose.yaml").read_text())["services"][
    "plan_server"
]


def instruction(name: str) -> list[str]:
    """Return what follows the last instruction of a name, its JSON list."""
    found = re.findall(rf"^{name} (?:[^\[]*?)(\[.*\])$", DOCKERFILE, re.MULTILINE | re.DOTALL)
    return list(json.loads(found[-1].splitlines()[0]))


def test_the_container_runs_the_node_and_asks_it_for_its_health() -> None:
    python, option, module, node, words = instruction("ENTRYPOINT")
    assert (python, option, words) == ("python", "-m", "--ros-args")
    assert find_spec(module) is not None
    assert node in NODES
    check = re.search(r'CMD \["python", "-m", "([\w.]+)"', DOCKERFILE)
    assert check is not None
    assert find_spec(check[1]) is not None


def test_the_container_has_no_rights_that_it_does_not_need() -> None:
    assert re.findall(r"^USER (.*)$", DOCKERFILE, re.MULTILINE) == ["1000:1000"]
    assert SERVER["cap_drop"] == ["ALL"]
    assert SERVER["read_only"] is True
    assert "no-new-privileges:true" in SERVER["security_opt"]
    assert "privileged" not in SERVER


def test_files_arguments_and_the_version_are_those_of_this_tree() -> None:
    build = SERVER["build"]
    assert (ROOT / "docker" / build["context"] / build["dockerfile"]).samefile(
        ROOT / "docker/Dockerfile"
    )
    assert SERVER["image"] == f"timely_llm:{timely_llm.__version__}"
    [extras] = re.findall(r"^ARG EXTRAS=(.*)$", DOCKERFILE, re.MULTILINE)
    assert set(extras.split(",")) <= EXTRAS.keys()
    [wheels] = re.findall(r"^ARG ROS_WHEELS=(.*)$", DOCKERFILE, re.MULTILINE)
    assert (ROOT / f"constraints-{wheels}.txt").is_file()
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    needed = ("setup.py", "tools", "docker", "config", "models", "README.md", "constraints.txt")
    assert not set(needed) & set(ignored)


def test_the_file_with_parameters_is_mounted_where_the_node_reads_it() -> None:
    mounts = dict(volume.split(":")[:2] for volume in SERVER["volumes"] if volume.startswith("./"))
    option, path = instruction("CMD")[-2:]
    assert option == "--params-file"
    [source] = [source for source, target in mounts.items() if target == path]
    setup = pytest.importorskip("timely_llm.ros.server.setup")
    given = yaml.safe_load((ROOT / "docker" / source).read_text())["/**"]["ros__parameters"]
    known = {parameter.name: parameter.default for parameter in setup.PARAMETERS}
    assert given == {name: known[name] for name in given}
