"""The hashes of pinned versions, as `pip install --require-hashes` reads them.

    python -m tools.hashes constraints.txt > .ci/hashes/constraints.txt

Those of all files that fit CPython 3.11 on Linux, x86-64, in the package index that pip is
configured with: of wheels, and of the source distribution where there is none. Wheels of the
folders that pip is configured with (`find-links`) count too, such as PyTorch's own builds for CPUs.
`make hashes` writes the lists of all pinned versions. With them, `make install HASHES=1` refuses
other files of these versions.
"""

from __future__ import annotations

import argparse
import hashlib
import re
import sys
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from packaging.tags import Tag, compatible_tags, cpython_tags
from packaging.utils import (
    InvalidSdistFilename,
    InvalidWheelFilename,
    canonicalize_name,
    parse_sdist_filename,
    parse_wheel_filename,
)
from packaging.version import Version

from tools.package_index import PackageIndexError, files_of, index_url, pip_setting

PYTHON = (3, 11)
PLATFORMS = [f"manylinux_2_{minor}_x86_64" for minor in range(36, 4, -1)]
PLATFORMS += ["manylinux2014_x86_64", "manylinux2010_x86_64", "manylinux1_x86_64", "linux_x86_64"]
"""Debian 12 has glibc 2.36."""
_PIN = re.compile(r"([\w.-]+)==(\S+)")


def pins(text: str) -> list[tuple[str, Version]]:
    """Return the names and versions of a file of constraints."""
    found = filter(None, map(_PIN.fullmatch, text.splitlines()))
    return [(canonicalize_name(one[1]), Version(one[2])) for one in found]


def fitting_tags() -> frozenset[Tag]:
    """Return the tags of wheels that fit."""
    made = [*cpython_tags(PYTHON, platforms=PLATFORMS)]
    made += compatible_tags(PYTHON, f"cp{PYTHON[0]}{PYTHON[1]}", PLATFORMS)
    return frozenset(made)


def hashes(
    name: str, version: Version, files: Iterable[dict[str, Any]], tags: frozenset[Tag]
) -> list[str]:
    """Return the SHA-256 of the files of a version that fit, in order.

    Args:
        name: of the package.
        version: the pinned one.
        files: of the package, as an index lists them (PEP 691).
        tags: of wheels that fit.

    Raises:
        PackageIndexError: none fits.
    """
    wheels: set[str] = set()
    sources: set[str] = set()
    for file in files:
        is_wheel, found = _kind(file["filename"], tags)
        # A build of one version may have a label of its own: 2.13.0+cpu.
        if found is not None and found.public == version.public:
            (wheels if is_wheel else sources).add(str(file["hashes"]["sha256"]))
    if not wheels | sources:
        raise PackageIndexError(f"no file of {name} {version} fits")
    return sorted(wheels or sources)


def _kind(filename: str, tags: frozenset[Tag]) -> tuple[bool, Version | None]:
    """Return whether a file is a wheel, and its version; None: it does not fit."""
    try:
        _, version, _, found = parse_wheel_filename(filename)
        return True, version if tags & found else None
    except InvalidWheelFilename:
        try:
            return False, parse_sdist_filename(filename)[1]
        except InvalidSdistFilename:
            return False, None


def found_links() -> list[Path]:
    """Return the folders with wheels that pip is configured with."""
    words = " ".join(pip_setting("find-links").values()).split()
    return [path for path in dict.fromkeys(map(Path, words)) if path.is_dir()]


def files_in(folder: Path, name: str) -> Iterator[dict[str, Any]]:
    """Yield the wheels of a package in a folder as an index would list them."""
    for path in sorted(folder.glob("*.whl")):
        if canonicalize_name(path.name.partition("-")[0]) == name:
            code = hashlib.sha256(path.read_bytes()).hexdigest()
            yield {"filename": path.name, "hashes": {"sha256": code}}


def lines(text: str) -> Iterator[str]:
    """Yield a requirement with its hashes for each pinned version of a file of constraints.

    Raises:
        PackageIndexError: no file of a version fits, or the index does not say.
        OSError: the index cannot be reached.
    """
    index, tags, folders = index_url(), fitting_tags(), found_links()
    chosen = pins(text)
    with ThreadPoolExecutor(8) as pool:
        listed = pool.map(lambda one: files_of(one[0], index), chosen)
        for (name, version), files in zip(chosen, listed, strict=True):
            files += [file for folder in folders for file in files_in(folder, name)]
            codes = hashes(name, version, files, tags)
            yield " \\\n  ".join([f"{name}=={version}", *(f"--hash=sha256:{one}" for one in codes)])


def main() -> int:
    """Print the requirements and return the exit status."""
    parser = argparse.ArgumentParser(description="Print the hashes of pinned versions.")
    parser.add_argument("constraints", type=Path, help="a file with lines such as numpy==2.4.6")
    given = parser.parse_args()
    try:
        made = list(lines(given.constraints.read_text(encoding="utf-8")))
    except (PackageIndexError, OSError) as error:
        print(f"hashes: {error}", file=sys.stderr)
        return 1
    print(f"# Made by `make hashes` of {given.constraints.name}: CPython 3.11, Linux, x86-64.")
    print(*made, sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
