"""Every field of every message has a source, and keeps its value in a round trip."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from rclpy.serialization import deserialize_message, serialize_message

from test.serving.scripted import Scene
from timely_llm import msg
from timely_llm.action import Converse, Plan
from timely_llm.core.events.schema import StepEvent
from timely_llm.core.step import StageTimes, StepResult
from timely_llm.core.time_utility import TimeUtility
from timely_llm.policies.registry import make_policy
from timely_llm.resources import resource
from timely_llm.ros import conversions as tables
from timely_llm.ros.conversions import MessageTable
from timely_llm.serving.publisher import Stats
from timely_llm.serving.server.statistics import statistics

LEVEL = {"ttft", "tpot", "deadline"}
REQUEST_ALONE = {"prompt", "slo_class"}
"""What a client may write instead of messages and a service level of its own."""
SIGNED = {"signature"}
"""Written after all other fields."""
TABLES: dict[Any, tuple[MessageTable[Any], set[str]]] = {
    msg.TimeUtility: (tables.TIME_UTILITY, set()),
    msg.PlanRequest: (tables.PLAN_REQUEST, SIGNED),
    Plan.Goal: (tables.PLAN_REQUEST, SIGNED),
    msg.PlanResult: (tables.PLAN_RESULT, SIGNED),
    Plan.Result: (tables.PLAN_RESULT, SIGNED),
    msg.Segment: (tables.SEGMENT, SIGNED),
    msg.SkillCall: (tables.SKILL_CALL, {"arguments"}),
    msg.ExecutionReport: (tables.EXECUTION_REPORT, SIGNED),
    msg.ChatMessage: (tables.CHAT_MESSAGE, set()),
    msg.StreamRequest: (tables.STREAM_REQUEST, LEVEL | REQUEST_ALONE | SIGNED),
    Converse.Goal: (tables.STREAM_REQUEST, LEVEL | REQUEST_ALONE | SIGNED | {"feedback"}),
    msg.StreamChunk: (tables.STREAM_CHUNK, SIGNED),
    msg.RequestStatus: (tables.REQUEST_STATUS, set()),
    msg.StreamResult: (tables.STREAM_RESULT, SIGNED),
    Converse.Result: (tables.STREAM_RESULT, SIGNED),
}
"""Table of each message, and the fields that are written beside it."""
ABSENT: dict[Any, set[str]] = {
    Plan.Goal: {"epoch", "dispatcher"},
    Converse.Goal: {"first_token", "dispatcher"},
    Plan.Result: {"agent"},
    Converse.Result: {"agent"},
}
"""Fields of flat messages that actions lack: dispatchers send no goals, a result has its goal."""
SENT_ALONE = {
    "EngineStep", "StepShare", "SkillArgument", "ServerLoad", "DueSegment", "KeptConversation",
    "PinnedSkillSet", "ServedRequest", "Signature", "StageTime",
}  # fmt: skip
"""Messages that are written in one place, field by field."""
BY_NAME = {"ServerStats", "StageUse"}
"""Messages of which `statistics` gives the fields by name."""


def fields_of(message: Any) -> set[str]:
    return set(message.get_fields_and_field_types()) - {"stamp"}


def writings() -> Iterator[tuple[str, set[str]]]:
    """Yield the name and the fields of each message that a node writes field by field."""
    paths = (resource("package.xml").parent / "timely_llm/ros").rglob("*.py")
    for path in (path for path in paths if path.parent.name != "probes"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and ast.unparse(node.func).startswith("msg."):
                given = {keyword.arg for keyword in node.keywords}
                if given and None not in given:
                    yield ast.unparse(node.func)[4:], {str(name) for name in given}


@pytest.mark.parametrize("message", TABLES, ids=lambda message: message.__name__)
def test_a_table_has_every_field_of_its_message_and_no_other(message: Any) -> None:
    table, beside = TABLES[message]
    assert not beside & set(table.names.values())
    absent = ABSENT.get(message, set())
    assert (set(table.names.values()) | beside) - absent == fields_of(message)


def test_every_message_has_a_table_or_is_written_in_one_place() -> None:
    messages = {name: made for name, made in vars(msg).items() if isinstance(made, type)}
    known = {name for name, made in messages.items() if hasattr(made, "SLOT_TYPES")}
    assert known == SENT_ALONE | BY_NAME | {m.__name__ for m in TABLES if hasattr(msg, m.__name__)}
    written = [(name, given) for name, given in writings() if name in SENT_ALONE]
    assert {name for name, _ in written} == SENT_ALONE
    for name, given in written:
        assert given - {"stamp"} == fields_of(getattr(msg, name)), name


def test_the_statistics_of_a_loop_are_the_fields_of_their_message() -> None:
    loop = Scene({}, make_policy("deadline")).loop
    assert set(statistics(loop, Stats())) == fields_of(msg.ServerStats)


@dataclass(frozen=True)
class Pair:
    left: int
    took_s: float


class Sent:
    def __init__(self, **fields: Any) -> None:
        self.__dict__.update(fields)


def test_units_go_names_change_and_converters_work_both_ways() -> None:
    table = MessageTable(Pair, Sent, {"left": "port"}, {"took_s": (str, float)})
    assert table.fields(Pair(3, 0.5)) == {"port": 3, "took": "0.5"}
    assert table.read(Sent(port=3, took="0.5")) == Pair(3, 0.5)
    assert table.read(Sent(took="0.5"), left=4) == Pair(4, 0.5)


def test_what_is_left_out_is_given() -> None:
    table = MessageTable(Pair, Sent, left_out=("left",))
    assert table.fields(Pair(3, 0.5)) == {"took": 0.5}
    assert table.read(Sent(took=0.5), left=4) == Pair(4, 0.5)


def test_a_table_of_an_attribute_that_is_not_there_is_a_mistake() -> None:
    with pytest.raises(ValueError, match="Pair has no right"):
        MessageTable(Pair, Sent, {"right": "starboard"})


def test_an_int_in_a_field_of_type_float64_arrives_as_its_value() -> None:
    utility = TimeUtility(beta=2, alpha=-1, ert_s=3)
    sent = serialize_message(tables.TIME_UTILITY.message(utility))
    got: Any = deserialize_message(sent, msg.TimeUtility)
    assert tables.TIME_UTILITY.read(got) == utility
    step = serialize_message(tables.step_message(StepResult({}, {}, duration_s=1)))
    assert deserialize_message(step, msg.EngineStep).duration == 1.0


STAGES = StageTimes((0.0, 0.3), (0.2, 0.25), (0.1,), (0.1, 0.1), (0.0, 0.15))


def test_a_step_in_stages_arrives_with_the_times_of_each() -> None:
    sent = serialize_message(tables.step_message(StepResult({}, {}, 0.6, stages=STAGES)))
    first, second = deserialize_message(sent, msg.EngineStep).stages
    assert (first.begin, first.compute, first.link, first.blocked) == (0.0, 0.2, 0.1, 0.1)
    assert (second.begin, second.compute, second.link, second.idle) == (0.3, 0.25, 0.0, 0.15)
    without = STAGES._replace(begins_s=())
    made = tables.step_message(StepResult({}, {}, 0.6, stages=without))
    assert [stage.begin for stage in made.stages] == [-1.0, -1.0], "negative: not known"
    assert not tables.step_message(StepResult({}, {}, 0.6)).stages


def test_statistics_have_a_share_of_each_stage() -> None:
    counts = Stats()
    counts.take(StepEvent(0.0, 0.6, (), result=StepResult({}, {}, 0.6, stages=STAGES)))
    loop = Scene({}, make_policy("stream")).loop
    made = tables.stats_message(statistics(loop, counts))
    assert [stage.compute for stage in made.stages] == pytest.approx([2 / 3, 0.5])
    assert [stage.idle for stage in made.stages] == pytest.approx([0.0, 0.3])
    assert [stage.link for stage in made.stages] == pytest.approx([1 / 3, 0.0])
    assert made.micro_batches == 0, "no step is in flight"
    assert not tables.stats_message(statistics(loop, Stats())).stages
