"""What is resolved to its lowest is all that the package asks for."""

from __future__ import annotations

import pytest

from timely_llm.core.requirements import EXTRAS, REQUIRED
from tools import lowest


def test_extras_that_name_extras_are_resolved(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ROS_DISTRO", raising=False)
    monkeypatch.setenv("ROS_WHEELS", "jazzy")
    lines = lowest.requirements(["test"])
    packages = [REQUIRED, *(EXTRAS[name] for name in ("server", "reports", "bags"))]
    for name, oldest in (pair for table in packages for pair in table.items()):
        assert f"{name}>={oldest}" in lines
    assert "ros-jazzy-rclpy" in lines
    assert len(lines) == len(set(lines))
    assert not [line for line in lines if line.startswith(("timely_llm", "vllm"))]


def test_an_unknown_extra(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["lowest", "robots"])
    assert lowest.main() == 2
    assert capsys.readouterr().err == "lowest: there is no extra 'robots'\n"
