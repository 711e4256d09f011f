import re
from importlib import import_module
from itertools import pairwise
from pathlib import Path

import pytest

from timely_llm.core.request import MAX_MESSAGES, ErrorCode, ReportState, RequestMode
from timely_llm.core.segment import ArgumentType
from timely_llm.resources import resource

FILES = [
    file for kind in ("msg", "srv", "action") for file in sorted(resource(kind).glob(f"*.{kind}"))
]
CONSTANT = re.compile(r"^uint\d+ (?P<name>[A-Z_]+)=(?P<value>\d+)", re.MULTILINE)
RECORDED = (
    "EngineStep", "ExecutionReport", "PlanRequest", "PlanResult", "Segment", "ServerStats",
    "StreamChunk", "StreamRequest", "StreamResult",
)  # fmt: skip


def lines_of(file: Path) -> list[str]:
    return file.read_text(encoding="utf-8").splitlines()


def constants_in(file: str, section: int = 0) -> dict[str, int]:
    """Return the constants of a message, or of a section of an action: goal, result, feedback."""
    text = resource(file).read_text(encoding="utf-8").split("\n---\n")[section]
    return {match["name"]: int(match["value"]) for match in CONSTANT.finditer(text)}


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_every_interface_can_be_imported(file: Path) -> None:
    module = import_module(f"timely_llm.{file.parent.name}")
    assert hasattr(module, file.stem), "the build is older than the interface: install again"


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_every_interface_and_every_field_has_a_comment(file: Path) -> None:
    first, *others = lines_of(file)
    assert first.startswith("# "), "the first line says what the interface is for"
    pairs = pairwise(["", *others])
    bare = [line for before, line in pairs if is_field(line) and not before.startswith("# ")]
    assert not bare
    assert not [line for line in others if is_field(line) and "#" in line], "comments stand above"
    assert max(map(len, lines_of(file))) <= 100


def is_field(line: str) -> bool:
    return line not in ("", "---") and not line.startswith("#")


@pytest.mark.parametrize("name", RECORDED)
def test_every_message_that_is_recorded_has_a_stamp_first(name: str) -> None:
    fields = getattr(import_module("timely_llm.msg"), name).get_fields_and_field_types()
    assert next(iter(fields.items())) == ("stamp", "builtin_interfaces/Time")


def test_error_codes_are_those_of_the_core() -> None:
    plan = import_module("timely_llm.action").Plan.Result
    for name in ("Plan", "Converse"):
        assert constants_in(f"action/{name}.action", 1) == {code.name: code for code in ErrorCode}
    assert {code.name: getattr(plan, code.name) for code in ErrorCode} == {
        code.name: code for code in ErrorCode
    }


def test_modes_are_those_of_the_core() -> None:
    for name in ("Plan", "Converse"):
        assert constants_in(f"action/{name}.action") == {mode.name: mode for mode in RequestMode}


def test_argument_types_are_those_of_the_core() -> None:
    assert constants_in("msg/SkillArgument.msg") == {kind.name: kind for kind in ArgumentType}


def test_the_bound_of_messages_is_that_of_the_core() -> None:
    text = resource("msg/StreamRequest.msg").read_text(encoding="utf-8")
    assert f"ChatMessage[<={MAX_MESSAGES}] messages" in text


def test_report_states_are_those_of_the_core() -> None:
    report = import_module("timely_llm.msg").ExecutionReport
    assert constants_in("msg/ExecutionReport.msg") == {state.name: state for state in ReportState}
    assert {state.name: getattr(report, state.name) for state in ReportState} == {
        state.name: state for state in ReportState
    }
