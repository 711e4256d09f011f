"""Output files of users: replaced whole or not at all, and only by a file of the same kind."""

from __future__ import annotations

import json
import math
import os
import stat
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from timely_llm.core.errors import TimelyError

_HEAD_BYTES = 4096


class OutputFileError(TimelyError):
    """A file cannot be written, or must not be overwritten."""


@dataclass(frozen=True)
class Kind:
    """A kind of file.

    Attributes:
        name: name for users, with its article.
        begins: possible first bytes, in lower case, without leading white space.
        endings: suffixes of such files, where the first bytes do not decide.
    """

    name: str
    begins: tuple[bytes, ...] = ()
    endings: tuple[str, ...] = ()

    def fits(self, path: Path) -> bool:
        """Return whether an existing file is empty or of this kind."""
        with path.open("rb") as file:
            head = file.read(_HEAD_BYTES)
        text = head.removeprefix(b"\xef\xbb\xbf").lstrip().lower()
        if not head or text.startswith(self.begins):
            return True
        return path.suffix.lower() in self.endings and b"\0" not in head


JSON = Kind("a JSON file", (b"{", b"["))
HTML = Kind("an HTML page", (b"<!doctype html", b"<html"))
PICTURE = Kind("a picture", (b"\x89png", b"%pdf", b"%!ps", b"<?xml", b"<svg", b"\xff\xd8"))
MCAP = Kind("an MCAP file", (b"\x89mcap0",))
YAML = Kind("a YAML file", endings=(".yaml", ".yml"))


def check(path: Path, kind: Kind) -> None:
    """Check that a path may be written as a file of this kind.

    Devices and pipes, such as /dev/stdout, may always be written.

    Raises:
        OutputFileError: its folder does not exist, it is a folder, or it is a file of another kind.
    """
    try:
        if not path.absolute().parent.is_dir():
            raise OutputFileError(f"cannot write {path}: {path.parent} is not a folder")
        if path.is_dir():
            raise OutputFileError(f"cannot write {path}: it is a folder")
        if path.is_file() and not kind.fits(path):
            raise OutputFileError(
                f"{path} is there and is not {kind.name}: name another file, or remove it"
            )
    except OSError as error:
        raise OutputFileError(f"cannot write {path}: {error.strerror}") from error


def write_file(path: Path, kind: Kind, write: Callable[[BinaryIO], object]) -> None:
    """Write a file. An existing file of the same kind is replaced when the new one is complete.

    Args:
        path: the file.
        kind: its kind.
        write: writes the content; if it raises an error, the old file stays.

    Raises:
        OutputFileError: as in `check`, or the file cannot be written.
    """
    check(path, kind)
    try:
        if path.exists() and not path.is_file():
            with path.open("wb") as device:
                write(device)
            return
        path = path.resolve()  # a link stays, its target is replaced
        number, name = tempfile.mkstemp(prefix=f".{path.name[:64]}.", dir=path.parent)
        try:
            with os.fdopen(number, "wb") as file:
                write(file)
                file.flush()
                os.fchmod(number, _mode(path))
                os.fsync(number)
            Path(name).replace(path)
        except BaseException:
            Path(name).unlink()
            raise
    except OSError as error:
        raise OutputFileError(f"cannot write {path}: {error.strerror}") from error


def write_text(path: Path, kind: Kind, text: str, errors: str = "strict") -> None:
    """Write a text in UTF-8; see `write_file`."""
    data = text.encode("utf-8", errors)
    write_file(path, kind, lambda file: file.write(data))


def write_json(path: Path, document: object) -> None:
    """Write a document as JSON; see `write_file`. A number that is not finite is null."""
    text = json.dumps(_finite(document), allow_nan=False, indent=2)
    write_text(path, JSON, text + "\n")


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _mode(path: Path) -> int:
    """Return the permissions for a file: its own if it exists, else those of a new file."""
    if path.exists():
        return stat.S_IMODE(path.stat().st_mode)
    umask = os.umask(0)
    os.umask(umask)
    return 0o666 & ~umask
