"""The wheels of ROS on PyPI that the package needs: `ROS_WHEELS` names their distribution.

A wheel of the package carries the type support of one distribution, so it asks for the packages of
that one. Where ROS itself is sourced the package is built with it, and asks for none.

    python -m tools.ros_wheels     # what a build needs, a name a line
"""

from __future__ import annotations

import os
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
NONE = "none"


class RosWheelsError(Exception):
    """A sentence about a distribution that cannot be built for."""


def settings() -> dict[str, Any]:
    """Return the table `tool.timely_llm` of pyproject.toml."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        table: dict[str, Any] = tomllib.load(file)["tool"]["timely_llm"]
    return table


def chosen(environment: Mapping[str, str] = os.environ) -> str:
    """Return the distribution of the wheels, or `NONE` for the ROS that is sourced.

    Args:
        environment: its ROS_WHEELS names one; ROS_DISTRO is the ROS that is sourced.

    Raises:
        RosWheelsError: no such wheels are known, or they would be mixed with a sourced ROS.
    """
    wheels, sourced = environment.get("ROS_WHEELS", ""), environment.get("ROS_DISTRO", "")
    known = list(settings()["ros-wheels"]["distributions"])
    choices = f"{', '.join(known)} or {NONE} (the ROS that is sourced)"
    if wheels not in ("", NONE, *known):
        raise RosWheelsError(f"ROS_WHEELS is {wheels[:60]!r}, but must be {choices}")
    if sourced and wheels not in ("", NONE):
        raise RosWheelsError(
            f"ROS_WHEELS is {wheels}, but ROS {sourced} is sourced, and the two must not be mixed:"
            " unset ROS_WHEELS, or use a shell in which no ROS is sourced"
        )
    if wheels == NONE and not sourced:
        raise RosWheelsError(f"ROS_WHEELS is {NONE}, but no ROS is sourced: ROS_DISTRO is not set")
    return NONE if sourced else wheels or known[0]


def run_requirements(distribution: str) -> list[str]:
    """Return the names of the wheels without which the package does not run."""
    return _names(distribution, settings()["ros-wheels"]["run"])


def build_requirements(distribution: str) -> list[str]:
    """Return the names of the wheels without which it cannot be built."""
    if distribution == NONE:
        return []
    wheels = settings()["ros-wheels"]
    return _names(distribution, [*wheels["build"], *wheels["distributions"][distribution]])


def _names(distribution: str, packages: list[str]) -> list[str]:
    return [] if distribution == NONE else [f"ros-{distribution}-{name}" for name in packages]


def main() -> int:
    """Print what a build needs; return the exit status."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        tools: list[str] = tomllib.load(file)["build-system"]["requires"]
    try:
        print(*tools, *build_requirements(chosen()), sep="\n")
    except RosWheelsError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
