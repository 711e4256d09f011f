"""Sources of a release of vLLM: of a folder, of a wheel, or of a package index by ranges of bytes.

A wheel has hundreds of megabytes, of which its Python files are few: with requests for ranges a
dozen of them are enough. Where an index or its server has none, pip downloads the wheel once.
"""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
import urllib.request
import zipfile
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from packaging.utils import InvalidWheelFilename, parse_wheel_filename
from packaging.version import Version

from tools.package_index import TIMEOUT_S, PackageIndexError, files_of, host
from tools.vllm_coupling.sources import Files, FolderFiles, WheelFiles

PACKAGE = "vllm"
BUFFER_BYTES = 1 << 20
PIP_S = 3600.0


class WheelError(PackageIndexError):
    """There is no such release, or it cannot be read: one sentence."""


class RangeFile(io.RawIOBase):
    """A file of a web server, of which only the ranges that are read are sent.

    Args:
        url: of the file; http or https.

    Raises:
        WheelError: the server sends no ranges, or not what was asked for.
        OSError: it cannot be reached.
    """

    def __init__(self, url: str) -> None:
        super().__init__()
        self._url, self._at = url, 0
        self.requests, self.received = 0, 0
        with self._ask(0, 0) as answer:
            whole = re.fullmatch(r"bytes 0-0/(\d+)", answer.headers.get("Content-Range", ""))
        if whole is None:
            raise WheelError(f"the server of {host(url)} sends no ranges of bytes")
        self._size = int(whole[1])

    def readable(self) -> bool:
        """Return that it can be read."""
        return True

    def seekable(self) -> bool:
        """Return that it can be read from any place."""
        return True

    def tell(self) -> int:
        """Return the place of the next byte."""
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Go to a place; return it."""
        begin = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        self._at = max(begin + offset, 0)
        return self._at

    def readinto(self, buffer: Any) -> int:
        """Read as much as there is room for; return how much that was."""
        view = memoryview(buffer).cast("B")
        wanted = min(len(view), self._size - self._at)
        if wanted <= 0:
            return 0
        with self._ask(self._at, self._at + wanted - 1) as answer:
            sent = answer.read(wanted + 1)
        if len(sent) != wanted:
            raise WheelError(
                f"the server of {host(self._url)} sent {len(sent)} bytes, not {wanted}"
            )
        view[:wanted] = sent
        self._at += wanted
        return wanted

    def _ask(self, first: int, last: int) -> Any:
        self.requests += 1
        self.received += last - first + 1
        request = urllib.request.Request(self._url, headers={"Range": f"bytes={first}-{last}"})
        answer = urllib.request.urlopen(request, timeout=TIMEOUT_S)
        if answer.status != 206:
            answer.close()
            raise WheelError(f"the server of {host(self._url)} sends no ranges of bytes")
        return answer


def releases(index: str) -> dict[Version, str]:
    """Return the releases of vLLM in an index, each with the address of one of its wheels.

    Yanked ones and those that are not final are left out.

    Raises:
        PackageIndexError: the index has no wheel, or does not answer in JSON (PEP 691).
        OSError: it cannot be reached.
    """
    found = {version: file["url"] for version, file in _wheels(files_of(PACKAGE, index))}
    if not found:
        raise WheelError(f"the index of {host(index)} has no wheel of {PACKAGE}")
    return found


def _wheels(files: Iterable[dict[str, Any]]) -> Iterator[tuple[Version, dict[str, Any]]]:
    for file in files:
        try:
            _, version, _, _ = parse_wheel_filename(file["filename"])
        except InvalidWheelFilename:
            continue
        if not (file.get("yanked") or version.is_prerelease):
            yield version, file


@contextmanager
def published(version: str, index: str, cache: Path) -> Iterator[tuple[str, Files, str]]:
    """Open a published release.

    Args:
        version: of the release; empty for the newest.
        index: the package index.
        cache: folder for a wheel that has to be downloaded whole.

    Yields:
        Its version, its sources, and how these were read.

    Raises:
        WheelError: there is none, or it cannot be read.
    """
    with ExitStack() as stack:
        try:
            found, archive = _by_ranges(version, index)
            how = f"by ranges of bytes from {host(index)}"
        except LookupError as error:
            raise WheelError(str(error)) from error
        except (PackageIndexError, OSError, ValueError, zipfile.BadZipFile) as error:
            print(f"{error}: pip downloads the wheel", file=sys.stderr)
            path = downloaded(version, cache)
            found, archive, how = wheel_version(path), zipfile.ZipFile(path), f"from {path.name}"
        yield found, WheelFiles(stack.enter_context(archive)), how


def _by_ranges(version: str, index: str) -> tuple[str, zipfile.ZipFile]:
    """Return a release's version and its wheel, of which only what is read will be sent.

    Raises:
        LookupError: the index has no such release.
        WheelError: it cannot be read in this way.
    """
    known = releases(index)
    wanted = Version(version) if version else max(known)
    if wanted not in known:
        newest = ", ".join(map(str, sorted(known, reverse=True)[:5]))
        raise LookupError(f"there is no wheel of {PACKAGE} {wanted}; the newest are {newest}")
    raw = RangeFile(known[wanted])
    return str(wanted), zipfile.ZipFile(io.BufferedReader(raw, BUFFER_BYTES))


def downloaded(version: str, cache: Path) -> Path:
    """Return a wheel that pip has downloaded, now or before.

    Raises:
        WheelError: pip finds none.
    """
    cache.mkdir(parents=True, exist_ok=True)
    wanted = f"{PACKAGE}=={version}" if version else PACKAGE
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps",
               "--only-binary=:all:", "--dest", str(cache), wanted]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=PIP_S, check=False)
    kept = [path for path in cache.glob(f"{PACKAGE}-*.whl") if path.is_file()]
    kept = [path for path in kept if version in ("", wheel_version(path))]
    if done.returncode or not kept:
        said = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
        raise WheelError(f"pip cannot download {wanted}: {(said or ['it says nothing'])[-1]}")
    return max(kept, key=lambda path: Version(wheel_version(path)))


@contextmanager
def local(path: Path) -> Iterator[tuple[str, Files, str]]:
    """Open a wheel, or a folder that the package lies in, unpacked or installed.

    Raises:
        WheelError: it is neither.
    """
    if path.is_dir():
        root = path.parent if (path / "v1").is_dir() and path.name == PACKAGE else path
        if not (root / PACKAGE).is_dir():
            raise WheelError(f"there is no folder {PACKAGE} in {path}")
        yield folder_version(root), FolderFiles(root), f"from {root}"
        return
    try:
        with zipfile.ZipFile(path) as archive:
            yield wheel_version(path), WheelFiles(archive), f"from {path.name}"
    except (OSError, zipfile.BadZipFile) as error:
        raise WheelError(f"{path} is no wheel: {error}") from error


def wheel_version(path: Path) -> str:
    """Return the version that a wheel's name says, "?" if it says none."""
    try:
        return str(parse_wheel_filename(path.name)[1])
    except InvalidWheelFilename:
        return "?"


def folder_version(root: Path) -> str:
    """Return the version of an installed or unpacked package, "?" if nothing says it."""
    for found in sorted(root.glob("vllm*.dist-info/METADATA")):
        said = re.search(r"^Version: (\S+)$", found.read_text(encoding="utf-8"), re.MULTILINE)
        if said:
            return said[1]
    return "?"


def cache_folder() -> Path:
    """Return the folder for wheels that had to be downloaded."""
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser() / "timely_llm" / "wheels"
