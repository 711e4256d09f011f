"""The tests that docs/reliability.md names exist, and each fault test has counted outcomes."""

import ast
import re

import pytest

from timely_llm.resources import resource
from tools.fault_table import HEAD, TABLE, fault_tests, table

ROOT = resource("package.xml").parent
PAGE = (ROOT / "docs/reliability.md").read_text()
TESTS = sorted({*re.findall(r"`(test/\S+\.py)::(\w+)`", PAGE)})
FAULTS = [
    [cell.strip() for cell in line.split(" | ")]
    for line in re.findall(
        r"^\| (?!fault \|)(.+) \|$",
        PAGE.partition("## Faults that are tried")[2].partition("\n## ")[0],
        re.M,
    )
]
"""What is tried, what is seen, the kind of the test and its name."""
OUTCOMES = [
    [cell.strip() for cell in line.strip("|\n").split("|")]
    for line in TABLE.findall(PAGE)[0].removeprefix(HEAD).splitlines()
]


@pytest.mark.parametrize(("file", "name"), TESTS)
def test_a_test_of_the_page_is_there(file: str, name: str) -> None:
    tree = ast.parse((ROOT / file).read_text())
    assert name in [node.name for node in tree.body if isinstance(node, ast.FunctionDef)]


def test_each_fault_has_a_test() -> None:
    assert len(FAULTS) >= 25
    assert [fault for fault, *_, test in FAULTS if "::test_" not in test] == []


def test_the_outcomes_of_each_fault_of_real_processes_are_counted() -> None:
    counted = set(fault_tests())
    for fault, _, kind, tests in FAULTS:
        named = set(re.findall(r"`(\S+)`", tests))
        assert bool(named & counted) == (kind == "processes"), fault
        assert kind in ("processes", "one process", "virtual time"), fault
    assert sum(kind == "processes" for _, _, kind, _ in FAULTS) >= 25


def test_each_fault_test_has_outcomes_and_nothing_is_lost() -> None:
    assert [test.strip("`") for _, test, *_ in OUTCOMES] == sorted(fault_tests())
    counted = [row for row in OUTCOMES if row[2] != "0"]
    assert len(counted) >= 25
    for _, test, _, answered, explained, lost, leaked, left in counted:
        assert int(answered) >= 0 and int(explained) >= 0, test
        assert (lost, left) == ("0", "0") and leaked in ("0", "-"), test


def test_the_runs_of_a_test_are_one_row() -> None:
    counts = {"answered": 2, "explained": 1, "lost": 0, "leaked": 0, "servers": 0, "left": 0}
    rows = [{"test": f"test/system/test_a.py::test_it_is_killed[{n}]"} | counts for n in range(2)]
    rows.append({"test": "test/system/test_a.py::test_b"} | counts | {"servers": 1})
    assert table(rows, ["test/system/test_c.py::test_c"]) == (
        f"{HEAD}"
        "| b | `test/system/test_a.py::test_b` | 1 | 2 | 1 | 0 | 0 | 0 |\n"
        "| it is killed | `test/system/test_a.py::test_it_is_killed` | 2 | 4 | 2 | 0 | - | 0 |\n"
        "| c | `test/system/test_c.py::test_c` | 0 | - | - | - | - | - |\n"
    )
