"""Build and check wheels, one for each version of CPython; `make wheels`.

    python -m tools.wheels [--output dist] [--python PATH]... [VERSION...]

All are built from one source distribution, with the packages of ROS that ROS_WHEELS names. An
interpreter is searched for on PATH as pythonX.Y, then where pyenv and uv keep theirs. Versions
without one are named at the end, with exit status 3: the wheels of the others are complete.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import venv
import zipfile
from collections.abc import Iterator, Sequence
from email.parser import HeaderParser
from pathlib import Path

from tools.ros_wheels import NONE, ROOT, chosen

VERSIONS = ("3.11", "3.12", "3.13", "3.14")
TOOLS = ("build>=1.2", "twine>=6.1", "wheel>=0.45")
PYENV = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
UV = Path(os.environ.get("UV_PYTHON_INSTALL_DIR", Path.home() / ".local/share/uv/python"))
MOST = {"GLIBC": (2, 28), "GLIBCXX": (3, 4, 25)}
"""Symbols of the tag manylinux_2_28, which the wheels of ROS have."""
NEEDED = (
    r"timely_llm/timely_llm_s__rosidl_typesupport_c\..*so",
    r"timely_llm/action/_plan\.py",
    r"timely_llm/report/assets/page\.html\.j2",
    r"timely_llm-[^/]+\.data/data/lib/libtimely_llm__rosidl_typesupport_c\.so",
    r"timely_llm-[^/]+\.data/data/lib/timely_llm/plan_server",
    r"timely_llm-[^/]+\.data/data/share/timely_llm/models/tiny_planner/model\.safetensors",
    r"timely_llm-[^/]+\.data/data/share/timely_llm/launch/plan_server\.launch\.py",
    r"timely_llm-[^/]+\.data/data/share/timely_llm/package\.xml",
)
"""Files without which an installation does not work, as patterns."""
ALLOWED = re.compile(r"timely_llm/|timely_llm-[^/]+\.(data|dist-info)/")


def interpreter(version: str) -> Path | None:
    """Return an interpreter of a version such as 3.12, None if there is none."""
    on_path = shutil.which(f"python{version}")
    kept = [*PYENV.glob(f"{version}.*/bin/python"), *UV.glob(f"cpython-{version}.*/bin/python3")]
    for path in (*([Path(on_path)] if on_path else []), *sorted(kept, reverse=True)):
        code = "import sys, venv; print(*sys.version_info[:2], sep='.')"
        done = subprocess.run([path, "-c", code], capture_output=True, text=True, check=False)
        if done.stdout.strip() == version:
            return path
    return None


def build(output: Path, interpreters: Sequence[Path]) -> list[Path]:
    """Build a source distribution and a wheel for each interpreter, and return the wheels.

    Raises:
        subprocess.CalledProcessError: a step failed; its output has been shown.
    """
    output.mkdir(parents=True, exist_ok=True)
    constraints = [ROOT / "constraints.txt", ROOT / f"constraints-{chosen()}.txt"]
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        venv.create(folder / "tools", with_pip=True)
        python = folder / "tools/bin/python"
        run([python, "-m", "pip", "install", "--quiet", *TOOLS])
        # pip gives these to the environments of builds; a space would separate two.
        pins = folder / "constraints.txt"
        pins.write_text("".join(path.read_text() for path in constraints if path.exists()))
        run([python, "-m", "build", "--sdist", "--outdir", folder / "source", ROOT])
        [source] = (folder / "source").glob("*.tar.gz")
        wheels = []
        for number, path in enumerate(interpreters):
            print(f"== {path}", flush=True)
            run([path, "-m", "venv", folder / f"{number}"])
            target = folder / f"{number}.wheels"
            run(
                [folder / f"{number}/bin/python", "-m", "pip", "wheel", "--quiet", "--no-deps",
                 "--wheel-dir", target, source],
                {"PIP_CONSTRAINT": str(pins)},
            )  # fmt: skip
            [wheel] = target.glob("*.whl")
            wheels.append(tagged(wheel, python, output))
        shutil.copy(source, output)
        run([python, "-m", "twine", "check", "--strict", output / source.name, *wheels])
    return wheels


def tagged(wheel: Path, python: Path, output: Path) -> Path:
    """Copy a wheel under the tag of the wheels of ROS, if its symbols allow, and return the copy.

    The libraries of ROS stay outside: they come by their own wheels, as every package of ROS
    expects. auditwheel cannot judge libraries that find each other so.
    """
    copy = output / wheel.name
    shutil.copy(wheel, copy)
    if newer := sorted(filter(is_newer, symbols(wheel))):
        print(
            f"wheels: {wheel.name} needs {', '.join(newer)}, more than manylinux_2_28 has:"
            " build in its image, or with an older compiler",
            file=sys.stderr,
        )
        return copy
    platform = f"manylinux_2_28_{wheel.stem.rpartition('linux_')[2]}"
    run([python, "-m", "wheel", "tags", "--remove", "--platform-tag", platform, copy])
    kind = "-".join(wheel.name.split("-")[:4])
    return next(output.glob(f"{kind}-{platform}.whl"))


def symbols(wheel: Path) -> set[str]:
    """Return the versions of symbols that a wheel's libraries need of the system's: GLIBC_2.14."""
    found = set[str]()
    with tempfile.TemporaryDirectory() as folder, zipfile.ZipFile(wheel) as file:
        for name in file.namelist():
            if name.endswith(".so"):
                path = file.extract(name, folder)
                said = subprocess.run(
                    ["readelf", "--version-info", "--wide", path],
                    capture_output=True, text=True, check=True,
                ).stdout  # fmt: skip
                found |= set(re.findall(r"Name: (GLIBC(?:XX)?_[\d.]+)", said))
    return found


def is_newer(symbol: str) -> bool:
    """Return whether a version of a symbol is newer than what manylinux_2_28 has."""
    library, _, version = symbol.partition("_")
    return tuple(map(int, version.split("."))) > MOST[library]


def problems(wheel: Path, version: str, distribution: str) -> Iterator[str]:
    """Yield a sentence for each thing in a wheel that would not work where it is installed.

    Args:
        wheel: the file.
        version: of the package.
        distribution: ROS distribution of the packages that it must require; `NONE`: no package.
    """
    name, said, python, abi, platform = wheel.stem.split("-")
    if (name, said) != ("timely_llm", version):
        yield f"its name says {name} {said}, not timely_llm {version}"
    if python != abi or not re.fullmatch(r"cp3\d+", python):
        yield f"it is for {python} and {abi}, not for one CPython"
    if not platform.startswith("manylinux_"):
        yield f"its platform is {platform}: a package index takes only manylinux"
    with zipfile.ZipFile(wheel) as file:
        names = file.namelist()
        for pattern in NEEDED:
            if not any(re.fullmatch(pattern, path) for path in names):
                yield f"{pattern} is missing"
        for path in names:
            if not ALLOWED.match(path) or "__pycache__" in path:
                yield f"{path} does not belong into it"
            if path.endswith(".so") and str(ROOT).encode() in file.read(path):
                yield f"{path} names the folder that it was built in"
        metadata = next(path for path in names if path.endswith(".dist-info/METADATA"))
        fields = HeaderParser().parsestr(file.read(metadata).decode())
    needed = fields.get_all("Requires-Dist", [])
    ros = {found[1] for line in needed if (found := re.match(r"ros-([a-z]+)-", line))}
    if ros != ({distribution} - {NONE}):
        yield f"it asks for packages of ROS {', '.join(sorted(ros)) or NONE}, not {distribution}"


def run(command: Sequence[str | Path], variables: dict[str, str] | None = None) -> None:
    """Run a command; its output is shown if it fails.

    Raises:
        subprocess.CalledProcessError: it failed.
    """
    done = subprocess.run(
        list(map(str, command)), env=os.environ | (variables or {}), cwd=ROOT, check=False,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    if done.returncode:
        print(done.stdout, file=sys.stderr)
    done.check_returncode()


def main() -> int:
    """Build, check, print what there is and what is missing, and return the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("versions", nargs="*", metavar="VERSION", default=list(VERSIONS))
    parser.add_argument("--output", type=Path, default=ROOT / "dist")
    given = parser.parse_args()
    found = {version: interpreter(version) for version in given.versions}
    there = [path for path in found.values() if path is not None]
    from tools.release import versions

    version, bad = versions(ROOT)["pyproject.toml"], 0
    if there:
        try:
            wheels = build(given.output.resolve(), there)
        except subprocess.CalledProcessError as error:
            print(f"wheels: {' '.join(map(str, error.cmd[:4]))} failed", file=sys.stderr)
            return 1
        for wheel in wheels:
            print(f"{wheel}  {wheel.stat().st_size / 1e6:.1f} MB")
            for sentence in problems(wheel, version, chosen()):
                bad += 1
                print(f"wheels: {wheel.name}: {sentence}", file=sys.stderr)
    if missing := [version for version, path in found.items() if path is None]:
        print(
            f"wheels: no CPython {', '.join(missing)} is here: `uv python install"
            f" {' '.join(missing)}` (from GitHub) or `pyenv install` (from python.org) brings it",
            file=sys.stderr,
        )
    return 1 if bad else 3 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
