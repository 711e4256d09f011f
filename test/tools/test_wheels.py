"""A wheel that would not work where it is installed is not passed."""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tools import ros_wheels, wheels

INFO = "timely_llm-1.2.dist-info"
DATA = "timely_llm-1.2.data/data"
FILES = (
    "timely_llm/__init__.py",
    "timely_llm/timely_llm_s__rosidl_typesupport_c.cpython-311-x86_64-linux-gnu.so",
    "timely_llm/action/_plan.py",
    "timely_llm/report/assets/page.html.j2",
    f"{DATA}/lib/libtimely_llm__rosidl_typesupport_c.so",
    f"{DATA}/lib/timely_llm/plan_server",
    f"{DATA}/share/timely_llm/models/tiny_planner/model.safetensors",
    f"{DATA}/share/timely_llm/launch/plan_server.launch.py",
    f"{DATA}/share/timely_llm/package.xml",
)
METADATA = "Metadata-Version: 2.4\nName: timely_llm\nVersion: 1.2\nRequires-Dist: ros-jazzy-rclpy\n"
NAME = "timely_llm-1.2-cp311-cp311-manylinux_2_28_x86_64.whl"

Make = Callable[..., list[str]]


@pytest.fixture
def found(tmp_path: Path) -> Make:
    """Make a wheel and return what is wrong with it."""

    def make(
        name: str = NAME, left_out: str = "none", more: str = "", metadata: str = METADATA
    ) -> list[str]:
        with zipfile.ZipFile(tmp_path / name, "w") as file:
            for path in (*FILES, *([more] if more else [])):
                if left_out not in path:
                    file.writestr(path, str(ros_wheels.ROOT) if path == more else "")
            file.writestr(f"{INFO}/METADATA", metadata)
        return list(wheels.problems(tmp_path / name, "1.2", "jazzy"))

    return make


def test_a_whole_wheel_is_passed(found: Make) -> None:
    assert found() == []


@pytest.mark.parametrize("path", FILES[1:])
def test_a_file_without_which_nothing_works_is_named(found: Make, path: str) -> None:
    [sentence] = found(left_out=path)
    assert sentence.endswith("is missing")


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"name": NAME.replace("1.2", "1.3")}, "its name says timely_llm 1.3, not timely_llm 1.2"),
        ({"name": NAME.replace("cp311-cp311", "py3-none")}, "is for py3 and none"),
        ({"name": NAME.replace("manylinux_2_28", "linux")}, "its platform is linux_x86_64"),
        ({"more": "test/test_x.py"}, "test/test_x.py does not belong into it"),
        ({"more": "timely_llm/__pycache__/x.pyc"}, "does not belong into it"),
        ({"more": "timely_llm/x.so"}, "timely_llm/x.so names the folder that it was built in"),
        ({"metadata": METADATA.replace("jazzy", "kilted")}, "packages of ROS kilted, not jazzy"),
        ({"metadata": f"{METADATA}Requires-Dist: ros-kilted-rclpy\n"}, "ROS jazzy, kilted, not"),
        ({"metadata": METADATA.split("Requires")[0]}, "packages of ROS none, not jazzy"),
    ],
)
def test_each_fault_has_a_sentence(found: Make, changed: dict[str, str], words: str) -> None:
    [sentence] = found(**changed)
    assert words in sentence


@pytest.mark.parametrize(
    ("symbol", "newer"),
    [
        ("GLIBC_2.2.5", False),
        ("GLIBC_2.28", False),
        ("GLIBC_2.34", True),
        ("GLIBCXX_3.4", False),
        ("GLIBCXX_3.4.25", False),
        ("GLIBCXX_3.4.30", True),
    ],
)
def test_a_symbol_newer_than_the_tag_is_noticed(symbol: str, newer: bool) -> None:
    assert wheels.is_newer(symbol) is newer


def test_an_interpreter_is_of_its_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for version, says in (("3.12.1", "3.12"), ("3.13.0", "3.10")):
        python = tmp_path / version / "bin/python"
        python.parent.mkdir(parents=True)
        python.write_text(f"#!/bin/sh\necho {says}\n")
        python.chmod(0o755)
    monkeypatch.setattr(wheels, "PYENV", tmp_path)
    monkeypatch.setattr(wheels, "UV", tmp_path / "none")
    monkeypatch.setattr("shutil.which", lambda name: None)
    assert wheels.interpreter("3.12") == tmp_path / "3.12.1/bin/python"
    assert wheels.interpreter("3.13") is None
    assert wheels.interpreter("3.14") is None


def test_missing_interpreters_are_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(wheels, "interpreter", lambda version: None)
    monkeypatch.setattr("sys.argv", ["wheels", "3.13", "3.14"])
    assert wheels.main() == 3
    assert "no CPython 3.13, 3.14 is here: `uv python install 3.13 3.14`" in capsys.readouterr().err
