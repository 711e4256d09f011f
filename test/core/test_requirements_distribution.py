"""Which ROS distribution runs, and what its executors can."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from timely_llm.core import requirements


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    requirements.ros_distribution.cache_clear()
    yield
    requirements.ros_distribution.cache_clear()


@pytest.fixture
def first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of Python packages before all others."""
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    return tmp_path


def install(folder: Path, name: str, version: str) -> None:
    info = folder / f"{name}-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")


def test_the_wheel_beside_rclpy_names_the_distribution(first: Path) -> None:
    install(first, "rclpy", "10.0.10")
    install(first, "ros_lyrical_rclpy", "10.0.10")
    assert requirements.ros_distribution() == "lyrical"
    assert requirements.rclpy_version() == (10, 0, 10)


def test_a_sourced_ros_before_the_wheels_names_itself(
    first: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(first, "rclpy", "7.1.4")
    monkeypatch.setenv("ROS_DISTRO", "jazzy")
    assert requirements.ros_distribution() == "jazzy"
    monkeypatch.delenv("ROS_DISTRO")
    requirements.ros_distribution.cache_clear()
    assert requirements.ros_distribution() == "unknown"


def test_without_ros_the_distribution_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [])
    monkeypatch.delenv("ROS_DISTRO", raising=False)
    assert requirements.ros_distribution() == "unknown"
    assert requirements.rclpy_version() == ()


@pytest.mark.parametrize(
    ("version", "awaits"),
    [
        ((7, 1, 4), False),
        ((7, 1, 10), False),
        ((7, 1, 11), True),
        ((8, 0, 0), False),
        ((9, 1, 1), False),
        ((9, 1, 2), True),
        ((10, 0, 0), False),
        ((10, 0, 10), True),
        ((11, 0, 1), True),
        ((3, 3, 16), False),
        ((), True),
    ],
)
def test_the_events_executor_is_offered_where_it_awaits_coroutines(
    version: tuple[int, ...], awaits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(requirements, "rclpy_version", lambda: version)
    assert ("events" in requirements.executors()) is awaits
