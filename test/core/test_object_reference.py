"""Objects of users, by module and name."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from timely_llm.core.errors import ConfigurationError
from timely_llm.core.object_reference import is_reference, load


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A working directory with modules, none of which stays imported."""
    (tmp_path / "referred.py").write_text("class Mine:\n    pass\n")
    (tmp_path / "breaks.py").write_text("x = 1\nx.y\n")
    (tmp_path / "not_python.py").write_text("def (:\n")
    (tmp_path / "leaves.py").write_text("import sys\nsys.exit(3)\n")
    (tmp_path / "lacks.py").write_text("import there_is_no_such_module\n")
    (tmp_path / "in_a_folder").mkdir()
    (tmp_path / "in_a_folder" / "inner.py").write_text("thing = 7\n")
    (tmp_path / "json.py").write_text("loads = 'not the real one'\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    before = set(sys.modules)
    yield tmp_path
    for name in sys.modules.keys() - before:
        del sys.modules[name]


def test_a_file_in_the_working_directory_is_found() -> None:
    assert load("referred:Mine").__name__ == "Mine"
    assert load("in_a_folder.inner:thing") == 7


def test_a_file_takes_no_other_module_s_place() -> None:
    assert callable(load("json:loads"))


@pytest.mark.parametrize(
    ("reference", "words"),
    [
        ("referred", "'referred' is not of the form my_module:MyName"),
        ("referred:", "is not of the form"),
        ("a b:c", "is not of the form"),
        ("nowhere:X", "the module nowhere is not found: start where nowhere.py lies, or install"),
        ("referred:Mind", "the module referred has no Mind: is Mine meant?"),
        ("referred:Other", "the module referred has no Other"),
        (
            "breaks:X",
            "the module breaks cannot be imported: AttributeError: 'int' object has no attribute"
            " 'y' (breaks.py, line 2)",
        ),
        ("not_python:X", "the module not_python cannot be imported: SyntaxError: "),
        ("leaves:X", "the module leaves cannot be imported: SystemExit: 3 (leaves.py, line 2)"),
        ("lacks:X", "ModuleNotFoundError: No module named 'there_is_no_such_module' (lacks.py"),
    ],
)
def test_what_is_wrong_is_one_sentence(reference: str, words: str) -> None:
    with pytest.raises(ConfigurationError) as found:
        load(reference)
    assert words in str(found.value)
    assert "\n" not in str(found.value)


@pytest.mark.parametrize("text", ["timely", "timely:", ":x", "a.b", "timely:rows=4", "1a:b", "a:1"])
def test_other_names_are_no_references(text: str) -> None:
    assert not is_reference(text)
