"""Files that users name: replaced whole or not at all, and only by their like."""

from __future__ import annotations

import json
import math
import stat
import subprocess
import sys
from pathlib import Path
from typing import BinaryIO

import pytest

from timely_llm.core.output_file import (
    HTML,
    JSON,
    PICTURE,
    YAML,
    Kind,
    OutputFileError,
    check,
    write_file,
    write_json,
    write_text,
)


@pytest.mark.parametrize(
    ("name", "kind", "before"),
    [
        ("a.json", JSON, ""),
        ("a.json", JSON, '\n [{"old": 1}]'),
        ("noted", JSON, "{}"),
        ("a.html", HTML, "<!DOCTYPE html><title>old</title>"),
        ("a.svg", PICTURE, "<svg>"),
        ("a.yaml", YAML, "# a comment\nname: old\n"),
    ],
)
def test_a_file_of_the_same_kind_is_replaced(
    tmp_path: Path, name: str, kind: Kind, before: str
) -> None:
    path = tmp_path / name
    path.write_text(before)
    path.chmod(0o640)
    write_text(path, kind, "new")
    assert path.read_text() == "new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert [each.name for each in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize(
    ("name", "kind", "before"),
    [
        ("README.md", JSON, "# Mine"),
        ("notes.json", HTML, "{}"),
        ("page.html", PICTURE, "<html>"),
        ("picture.png", JSON, "\x89PNG"),
        ("model.safetensors", YAML, "\0\0"),
        ("notes.txt", YAML, "name: mine"),
        ("weights.yaml", YAML, "\0\0"),
    ],
)
def test_a_file_of_another_kind_is_left_alone(
    tmp_path: Path, name: str, kind: Kind, before: str
) -> None:
    path = tmp_path / name
    path.write_text(before)
    words = f"{name} is there and is not {kind.name}"
    with pytest.raises(OutputFileError, match=words):
        check(path, kind)
    with pytest.raises(OutputFileError, match=words):
        write_text(path, kind, "new")
    assert path.read_text() == before


def test_a_write_that_fails_leaves_everything_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text("{}")

    def breaks(file: BinaryIO) -> None:
        file.write(b"half")
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        write_file(path, JSON, breaks)
    assert path.read_text() == "{}"
    assert [each.name for each in tmp_path.iterdir()] == ["a.json"]


def test_a_link_goes_on_pointing(tmp_path: Path) -> None:
    (tmp_path / "real.json").write_text("{}")
    (tmp_path / "link.json").symlink_to("real.json")
    write_text(tmp_path / "link.json", JSON, "[]")
    assert (tmp_path / "link.json").is_symlink()
    assert (tmp_path / "real.json").read_text() == "[]"


def test_new_files_have_the_permissions_of_new_files(tmp_path: Path) -> None:
    write_text(tmp_path / "a.json", JSON, "{}")
    (tmp_path / "b").touch()
    assert (tmp_path / "a.json").stat().st_mode == (tmp_path / "b").stat().st_mode


def test_devices_and_pipes_are_written_to(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path;"
        "from timely_llm.core.output_file import JSON, write_text;"
        "write_text(Path('/dev/stdout'), JSON, '{}'); write_text(Path('/dev/null'), JSON, '{}')"
    )
    done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, check=True)
    assert done.stdout == b"{}"
    assert Path("/dev/null").is_char_device()


def test_what_cannot_be_written_is_an_error_of_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(OutputFileError, match="it is a folder"):
        write_text(tmp_path, JSON, "{}")
    with pytest.raises(OutputFileError, match="no is not a folder"):
        write_text(tmp_path / "no" / "a.json", JSON, "{}")
    with pytest.raises(OutputFileError, match="No space left on device"):
        write_text(Path("/dev/full"), JSON, "{}")


def test_a_number_that_json_lacks_is_null(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    document = {"a": [1.5, math.inf, (-math.inf, {"b": math.nan})], "c": "Infinity"}
    write_json(path, document)
    read = json.loads(path.read_text(), parse_constant=pytest.fail)
    assert read == {"a": [1.5, None, [None, {"b": None}]], "c": "Infinity"}
