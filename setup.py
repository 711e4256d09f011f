"""Put the ROS interfaces and the shared files into the wheel.

pip runs this file and colcon does not. It drives the CMakeLists.txt that colcon drives, with the
ROS packages of the sourced environment if there is one, else with those of the Python wheels of one
distribution: see tools/ros_wheels.py.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import ClassVar

import cmake
import ninja
from setuptools import Command, Distribution, setup
from setuptools.command.build import build

ROOT = Path(__file__).resolve().parent
sys.path.insert(0, str(ROOT))

from tools import ros_wheels  # noqa: E402

try:
    DISTRIBUTION = ros_wheels.chosen()
except ros_wheels.RosWheelsError as error:
    sys.exit(str(error))
NAME = "timely_llm"
GENERATED = ("*.so", "msg/*.py", "srv/*.py", "action/*.py")
# Of use to colcon and to C++ packages built on top, and full of paths of the build folder.
FOLDERS_LEFT_OUT = {"cmake", "include", "parent_prefix_path"}
SUFFIXES_LEFT_OUT = {".bash", ".dsv", ".sh", ".zsh"}


def ros_wheels_prefix() -> Path:
    """Return the prefix into which the ROS wheels were installed."""
    site_packages = Path(str(metadata.distribution("ros-rosidl-cmake").locate_file(""))).resolve()
    return next(p for p in site_packages.parents if (p / "share" / "rosidl_cmake").is_dir())


def cmake_environment() -> dict[str, str]:
    """Return the variables with which CMake finds its tools and the ROS packages."""
    before = {"PATH": [cmake.CMAKE_BIN_DIR, ninja.BIN_DIR]}
    if DISTRIBUTION != ros_wheels.NONE:
        prefix = str(ros_wheels_prefix())
        before |= {"AMENT_PREFIX_PATH": [prefix], "CMAKE_PREFIX_PATH": [prefix]}
    joined = {
        name: os.pathsep.join(filter(None, [*paths, os.environ.get(name)]))
        for name, paths in before.items()
    }
    return {**os.environ, **joined}


class BuildInterfaces(Command):
    """Configure, build and install the CMake project, and take what belongs into a wheel."""

    description = "generate and compile the ROS interfaces"
    user_options: ClassVar[list[tuple[str, str, str]]] = []
    editable_mode = False  # set by setuptools for `pip install --editable`

    def initialize_options(self) -> None:
        """Declare the options shared with `build`."""
        self.build_lib: str | None = None
        self.build_temp: str | None = None

    def finalize_options(self) -> None:
        """Take the options from `build`."""
        self.set_undefined_options(
            "build", ("build_lib", "build_lib"), ("build_temp", "build_temp")
        )

    def run(self) -> None:
        """Build, then collect."""
        assert self.build_lib and self.build_temp
        work = Path(self.build_temp).resolve() / "interfaces"
        # The CMake cache of an earlier isolated build names folders that are gone.
        shutil.rmtree(work, ignore_errors=True)
        stage = work / "stage"
        environment = cmake_environment()
        options = {
            "BUILD_TESTING": "OFF",
            "CMAKE_BUILD_TYPE": "Release",
            "CMAKE_INSTALL_PREFIX": stage,
            "Python3_EXECUTABLE": sys.executable,
        }
        configure = ["cmake", "-G", "Ninja", "-S", str(ROOT), "-B", str(work / "build")]
        configure += [f"-D{name}={value}" for name, value in options.items()]
        compile_and_install = ["cmake", "--build", str(work / "build"), "--target", "install"]
        subprocess.run(configure, env=environment, check=True)
        subprocess.run(compile_and_install, env=environment, check=True)
        package = next(stage.glob(f"lib/python*/*-packages/{NAME}"))
        self._copy_generated(package, (ROOT if self.editable_mode else Path(self.build_lib)) / NAME)
        self._add_data_files(stage)

    def _copy_generated(self, package: Path, target: Path) -> None:
        """Copy the generated modules into the build or, for an editable install, the sources."""
        for folder in ("msg", "srv", "action"):
            shutil.rmtree(target / folder, ignore_errors=True)
        for path in (path for pattern in GENERATED for path in package.glob(pattern)):
            copy = target / path.relative_to(package)
            copy.parent.mkdir(parents=True, exist_ok=True)
            # Replace, never overwrite: a running node may have the old library mapped.
            copy.unlink(missing_ok=True)
            shutil.copy2(path, copy)

    def _add_data_files(self, stage: Path) -> None:
        """Let the wheel carry the rest: libraries, executables and share/, below its prefix."""
        files: dict[str, list[str]] = {}
        for path in sorted(path for path in stage.rglob("*") if path.is_file()):
            inside = path.relative_to(stage)
            if (
                FOLDERS_LEFT_OUT.isdisjoint(inside.parts)
                and inside.suffix not in SUFFIXES_LEFT_OUT
                and not any(part.endswith("-packages") for part in inside.parts)
            ):
                files.setdefault(str(inside.parent), []).append(os.path.relpath(path, ROOT))
        self.distribution.data_files = [*(self.distribution.data_files or []), *files.items()]

    def get_source_files(self) -> list[str]:
        """Return what a source distribution needs to run this command."""
        folders = (
            "msg",
            "srv",
            "action",
            "cmake",
            "scripts",
            "launch",
            "config",
            "examples",
            "models",
        )
        found = (path for folder in folders for path in sorted((ROOT / folder).rglob("*")))
        files = [path for path in found if path.is_file() and "__pycache__" not in path.parts]
        single = ["CMakeLists.txt", "package.xml", "tools/__init__.py", "tools/ros_wheels.py"]
        return [*single, *(str(path.relative_to(ROOT)) for path in files)]

    def get_outputs(self) -> list[str]:
        """Return nothing: `install_data` lists the files."""
        return []

    def get_output_mapping(self) -> dict[str, str]:
        """Return nothing: no output stands for a source file."""
        return {}


class Build(build):
    """`build` with the interfaces."""

    sub_commands: ClassVar = [*build.sub_commands, ("build_interfaces", None)]


class BinaryDistribution(Distribution):
    """A distribution with compiled code although setuptools compiles none of it."""

    def has_ext_modules(self) -> bool:
        """Return True: the wheel is of one platform."""
        return True

    def has_data(self) -> bool:
        """Return True: setuptools asks this before it puts data files into an editable wheel."""
        return True


setup(
    distclass=BinaryDistribution,
    cmdclass={"build": Build, "build_interfaces": BuildInterfaces},
    data_files=[],
    install_requires=[
        *ros_wheels.settings()["dependencies"],
        *ros_wheels.run_requirements(DISTRIBUTION),
    ],
    # pip asks for these before an isolated build, and only then.
    setup_requires=ros_wheels.build_requirements(DISTRIBUTION),
)
