import re
from importlib import import_module
from pathlib import Path

import pytest

from timely_llm.core.request import ErrorCode, ReportState
from timely_llm.resources import resource

FILES = [
    file for kind in ("msg", "srv", "action") for file in sorted(resource(kind).glob(f"*.{kind}"))
]
CONSTANT = re.compile(r"^uint\d+ (?P<name>[A-Z_]+)=(?P<value>\d+)", re.MULTILINE)


def lines_of(file: Path) -> list[str]:
    return file.read_text(encoding="utf-8").splitlines()


def constants_in(file: str) -> dict[str, int]:
    text = resource(file).read_text(encoding="utf-8")
    return {match["name"]: int(match["value"]) for match in CONSTANT.finditer(text)}


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_every_interface_can_be_imported(file: Path) -> None:
    module = import_module(f"timely_llm.{file.parent.name}")
    assert hasattr(module, file.stem), "the build is older than the interface: install again"


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_every_interface_and_every_field_has_a_comment(file: Path) -> None:
    first, *others = lines_of(file)
    assert first.startswith("# "), "the first line says what the interface is for"
    bare = [line for line in others if line not in ("", "---") and "# " not in line]
    assert not bare


def test_error_codes_are_those_of_the_core() -> None:
    plan = import_module("timely_llm.action").Plan.Result
    assert constants_in("action/Plan.action") == {code.name: code for code in ErrorCode}
    assert {code.name: getattr(plan, code.name) for code in ErrorCode} == {
        code.name: code for code in ErrorCode
    }


def test_report_states_are_those_of_the_core() -> None:
    report = import_module("timely_llm.msg").ExecutionReport
    assert constants_in("msg/ExecutionReport.msg") == {state.name: state for state in ReportState}
    assert {state.name: getattr(report, state.name) for state in ReportState} == {
        state.name: state for state in ReportState
    }
