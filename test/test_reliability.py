"""The tests that docs/reliability.md names exist."""

import ast
import re

import pytest

from timely_llm.resources import resource

ROOT = resource("package.xml").parent
PAGE = (ROOT / "docs/reliability.md").read_text()
TESTS = sorted({*re.findall(r"`(test/\S+\.py)::(\w+)`", PAGE)})
FAULTS = re.findall(r"^\| (?!fault \|)(?!-)(.+)\|$", PAGE, re.M)


@pytest.mark.parametrize(("file", "name"), TESTS)
def test_a_test_of_the_page_is_there(file: str, name: str) -> None:
    tree = ast.parse((ROOT / file).read_text())
    assert name in [node.name for node in tree.body if isinstance(node, ast.FunctionDef)]


def test_each_fault_has_a_test() -> None:
    assert len(FAULTS) >= 25
    assert [fault for fault in FAULTS if "::test_" not in fault] == []
