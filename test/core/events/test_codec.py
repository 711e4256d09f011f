"""Events as lines: to JSON and back nothing is lost, and what is wrong is named."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from test.core.events.lines import written
from timely_llm.core.events.codec import (
    EVENTS,
    EventError,
    _Written,
    as_json,
    from_json,
    is_written,
    kind_of,
)
from timely_llm.core.events.probe_events import ProbeFailedEvent
from timely_llm.core.events.run_event import RunEvent, run_event
from timely_llm.core.events.schema import (
    CallEvent,
    EndEvent,
    KvWaitEvent,
    PlanRequestEvent,
    StepEvent,
    StepPlanEvent,
    StreamEvent,
)
from timely_llm.core.reason import Cause, Reason
from timely_llm.core.request import ErrorCode, PlanResult
from timely_llm.core.step import StageTimes

NUMBERS = st.floats(allow_nan=False, allow_infinity=False)
REASONS = st.builds(lambda cause, number: Reason(cause, number).rounded, st.sampled_from(Cause),
                    st.none() | st.floats(-1e6, 1e6))  # fmt: skip
SECONDS = st.floats(0.0, 1e6)


@st.composite
def stage_times(draw: st.DrawFn) -> StageTimes:
    stages = draw(st.integers(1, 4))
    begins, compute, links, blocked, idle = (
        tuple(draw(st.lists(SECONDS, min_size=count, max_size=count)))
        for count in (draw(st.sampled_from((0, stages))), stages, stages - 1, stages, stages)
    )
    return StageTimes(begins, compute, links, blocked, idle)


VALUES: Mapping[str, st.SearchStrategy[Any]] = {
    "str": st.text(),
    "int": st.integers(),
    "bool": st.booleans(),
    "float": NUMBERS,
    "float | None": st.none() | NUMBERS,
    "tuple[str, ...]": st.lists(st.text(), max_size=3).map(tuple),
    "Reasons": st.dictionaries(st.text(), REASONS, max_size=3).map(lambda why: (*why.items(),)),
    "StageTimes | None": st.none() | stage_times(),
}


@st.composite
def events(draw: st.DrawFn) -> RunEvent:
    kind = draw(st.sampled_from(EVENTS))
    return kind(draw(NUMBERS), *(draw(VALUES[str(one.type)]) for one in written(kind)))


@given(events())
def test_to_json_and_back_is_the_same_event(event: RunEvent) -> None:
    line = json.loads(json.dumps(as_json(event), allow_nan=False))
    assert from_json(line) == event
    assert list(line)[:2] == ["event", "t"]


@pytest.mark.parametrize("number", [math.inf, -math.inf, math.nan])
def test_a_number_that_json_lacks_is_null(number: float) -> None:
    line = as_json(StepEvent(1.0, number, ("r",)))
    assert line == {"event": "step", "t": 1.0, "s": None, "ids": ["r"]}
    read = from_json(line)
    assert isinstance(read, StepEvent) and math.isnan(read.s)
    asked = as_json(StreamEvent(1.0, "r", "a", 1.0, 0.1, number, 1.0, 5.0))
    assert asked["deadline_s"] is None


@given(events(), st.dictionaries(st.text(min_size=30), st.integers(), max_size=3))
def test_keys_of_a_newer_version_are_ignored(event: RunEvent, newer: dict[str, int]) -> None:
    assert from_json({**newer, **as_json(event)}) == event


def test_a_field_of_a_new_type_needs_a_form() -> None:
    @run_event
    class NewEvent(RunEvent):
        words: str | None

    with pytest.raises(TypeError, match=r"'words' has the type str \| None: add a form for it"):
        _Written.of(fields(NewEvent)[1])


def test_event_logs_keep_the_kinds_of_events_that_were_renamed() -> None:
    kinds = [kind_of(event) for event in (PlanRequestEvent, StepPlanEvent, ProbeFailedEvent)]
    assert kinds == ["request", "plan", "failed"]


def test_kinds_are_named_once() -> None:
    kinds = [kind_of(event) for event in EVENTS]
    assert len(set(kinds)) == len(kinds)
    assert kind_of(StepEvent) == "step"
    assert from_json({"event": "of a newer version", "t": 1.0}) is None
    assert from_json({"event": ["step"], "t": 1.0}) is None


def test_what_an_event_carries_stays_in_the_process() -> None:
    result = PlanResult("r", "a", ErrorCode.NONE, "")
    carrying = EndEvent(1.0, "r", "none", "", result, admitted=False)
    assert as_json(carrying) == {"event": "end", "t": 1.0, "id": "r", "code": "none", "message": ""}
    assert carrying == EndEvent(1.0, "r", "none", "")
    assert not is_written(KvWaitEvent(1.0))


def test_only_a_plan_that_was_given_says_so() -> None:
    asked = PlanRequestEvent(1.0, "r", "a", "Go.", 1.0, -2.0, 1.0)
    assert "given" not in as_json(asked)
    given_plan = PlanRequestEvent(1.0, "r", "a", "Go.", 1.0, -2.0, 1.0, given=True)
    assert list(as_json(given_plan).items())[-1] == ("given", True)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"call": None}, "the call at 2.5 s: call: it must be a text, not None"),
        ({"index": 1.5}, "the call at 2.5 s: index: it must be a whole number, not 1.5"),
        ({"s": "long"}, "the call at 2.5 s: s: it must be a number, not 'long'"),
        ({"s": True}, "the call at 2.5 s: s: it must be a number, not True"),
        ({"t": "now"}, "t of the event 'call' must be seconds, not 'now'"),
    ],
)
def test_a_value_of_another_type_is_named(change: dict[str, Any], complaint: str) -> None:
    line = {**as_json(CallEvent(2.5, "r", 0, "tp()", 1.0)), **change}
    with pytest.raises(EventError, match=re.escape(complaint)):
        from_json(line)


@pytest.mark.parametrize(
    ("event", "complaint"),
    [
        ({"event": "call", "id": "r"}, "the event 'call' at 2 s has no 'index'"),
        ({"event": "plan"}, "the event 'plan' at 2 s has no 'why'"),
        ({"event": "plan", "why": []}, "the plan at 2 s: why: it must be reasons by request"),
        ({"event": "plan", "why": {"a": "memory"}}, "the plan at 2 s: why: a reason is a cause"),
        ({"event": "plan", "why": {"a": ["nothing"]}}, "the plan at 2 s: why: a reason is a cause"),
        ({"event": "step", "s": 1.0, "ids": [1]}, "ids: it must be a list of texts, not [1]"),
    ],
)
def test_a_field_that_is_missing_or_broken_is_named(event: dict[str, Any], complaint: str) -> None:
    with pytest.raises(EventError, match=re.escape(complaint)):
        from_json({"t": 2.0, **event})


STAGES = {"begins_s": [0.0, 0.2], "stage_s": [0.1, 0.1], "link_s": [0.1], "blocked_s": [0.1, 0.1],
          "idle_s": [0.0, 0.0]}  # fmt: skip
STEP = {"event": "step", "t": 1.0, "s": 0.3, "ids": ["r"]}


def test_a_step_of_an_older_log_has_no_stages() -> None:
    assert from_json(STEP) == StepEvent(1.0, 0.3, ("r",))
    read = from_json({**STEP, "stages": STAGES})
    assert isinstance(read, StepEvent) and read.stages is not None
    assert read.stages.link_s == (0.1,)


def test_a_step_has_its_rows_and_tokens_and_one_of_an_older_log_has_none() -> None:
    decoded = as_json(StepEvent(1.0, 0.3, ("r", "q"), None, 2, 0, 700))
    assert decoded == {**STEP, "ids": ["r", "q"], "rows": 2, "context_tokens": 700}
    assert from_json(decoded) == StepEvent(1.0, 0.3, ("r", "q"), None, 2, 0, 700)
    read = from_json(STEP)
    assert isinstance(read, StepEvent)
    assert (read.rows, read.prompt_tokens, read.context_tokens) == (0, 0, 0)


@pytest.mark.parametrize(
    "stages",
    [
        [], "two", {**STAGES, "link_s": [0.1, 0.1]}, {**STAGES, "stage_s": []},
        {**STAGES, "begins_s": [0.0]}, {**STAGES, "idle_s": [0.0, -1.0]},
        {**STAGES, "idle_s": [0.0, "x"]}, {**STAGES, "idle_s": None}, {"stage_s": [0.1]},
    ],
)  # fmt: skip
def test_stages_that_do_not_fit_together_are_refused(stages: object) -> None:
    with pytest.raises(EventError, match=r"the step at 1 s: stages: it must have"):
        from_json({**STEP, "stages": stages})
