"""The pages docs/add_*.md, followed literally: files, commands and output."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from test.system.conftest import ROOT
from test.system.page import settled, steps_of
from test.system.reader import Reader

PAGES = ("add_a_policy", "add_an_engine", "add_an_experiment", "add_a_robot")
MOST_LINES = 40
"""Of an example: it is read on one screen."""


@pytest.fixture
def reader(tmp_path: Path, domain: int) -> Iterator[Reader]:
    made = Reader(tmp_path, domain)
    yield made
    made.close()


@pytest.mark.timeout(400)
@pytest.mark.parametrize("page", PAGES)
def test_an_extension_goes_as_its_page_says(reader: Reader, page: str) -> None:
    steps = steps_of((ROOT / f"docs/{page}.md").read_text())
    assert {"file", "command"} <= {step.kind for step in steps}
    for step in steps:
        assert settled(reader.follow(step)) == settled(step.text), step.name


@pytest.mark.parametrize("page", PAGES)
def test_an_example_is_read_on_one_screen(page: str) -> None:
    files = [s for s in steps_of((ROOT / f"docs/{page}.md").read_text()) if s.kind == "file"]
    assert max(step.text.count("\n") for step in files) <= MOST_LINES
    for step in files:
        if step.name.endswith(".py"):
            assert ast.get_docstring(ast.parse(step.text)) or step.name.startswith("test_")
