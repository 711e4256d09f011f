"""Sizes, folders, circles and importers are those of the files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tools import shape

checkout = pytest.mark.skipif(
    not (shape.ROOT / ".git").exists(), reason="the source tree is no checkout of git"
)
FILES = {
    "timely_llm/__init__.py": "",
    "timely_llm/one/a.py": "from timely_llm.one.b import X\nfrom timely_llm.one import c\n",
    "timely_llm/one/b.py": "import timely_llm.one.c\nX = 1\n",
    "timely_llm/one/c.py": "from typing import TYPE_CHECKING\n"
    "if TYPE_CHECKING:\n    from timely_llm.one.a import Y\n"
    "def late():\n    import timely_llm.one.b\n",
    **{f"timely_llm/many/m{number}.py": "pass\n" for number in range(shape.MOST_FILES + 1)},
}


def test_a_circle_through_types_is_distinguished_from_one_at_run_time() -> None:
    found = shape.shape(FILES)
    assert found.circles == []
    assert found.circles_with_types == [[f"timely_llm.one.{name}" for name in "abc"]]
    back = {"timely_llm/one/b.py": "from timely_llm.one.a import Z\n"}
    assert shape.shape(FILES | back).circles == [["timely_llm.one.a", "timely_llm.one.b"]]


def test_lines_folders_and_importers_are_counted() -> None:
    found = shape.shape(FILES)
    assert found.folders["timely_llm/one"] == (3, 9)
    assert found.lines == 9 + shape.MOST_FILES + 1
    assert found.full_folders == ["timely_llm/many"]
    # a: c for types; b: a, and c in a function; c: a and b.
    assert (found.one_importer, found.modules) == (1, 3 + shape.MOST_FILES + 1)


@checkout
def test_a_commit_stands_beside_the_working_tree_with_the_ratio(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(shape, "path", lambda commit: {"decode turn, files": 20 if commit else 10})
    assert shape.main(["HEAD", "--json", str(tmp_path / "shape.json")]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert shown[0].split() == ["HEAD", "working", "tree", "ratio"]
    (lines,) = [line.split() for line in shown if line.startswith("lines ")]
    written = json.loads((tmp_path / "shape.json").read_text())
    assert lines[1] == f"{written['HEAD']['lines']:,}"
    (turns,) = [line.split() for line in shown if line.startswith("decode turn, files")]
    assert turns[3:] == ["20", "10", "0.500"]
    assert [line.split()[-3:] for line in shown if line.startswith("decode turn, calls")] == [
        ["-", "-", "-"]
    ]
    assert float(lines[3]) == round(written["working tree"]["lines"] / written["HEAD"]["lines"], 3)


@checkout
def test_the_path_of_a_request_is_counted_in_the_tree_itself() -> None:
    found = shape.path(None)
    assert len(found) == 4
    assert 1 < found["decode turn, files"] < found["to the first segment, files"]
    assert found["decode turn, files"] < found["decode turn, calls"]


@checkout
def test_a_commit_that_is_not_there_gets_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    assert shape.main(["no-such-commit"]) == 2
    assert capsys.readouterr().err.startswith("shape: 'no-such-commit' is no commit of ")
