from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest

from test.traces.workloads import SMALL
from timely_llm.traces.model import SkillTime, Trace, TraceError

JOB, _ = SMALL.jobs
(TALK,) = SMALL.conversations


def test_a_trace_knows_its_agents_and_its_span() -> None:
    assert SMALL.agents == {"drone_0", "drone_1", "person_0"}
    assert SMALL.span_s == pytest.approx(0.051)
    assert Trace("nothing").span_s == 0.0
    assert [job.urgent for job in SMALL.jobs] == [False, True]


@pytest.mark.parametrize(
    ("values", "complaint"),
    [
        ({"arrival_s": -1.0}, "a: arrival_s must be 0 to"),
        ({"arrival_s": math.nan}, "a: arrival_s must be 0 to"),
        ({"arrival_s": math.inf}, "a: arrival_s must be 0 to"),
        ({"id": ""}, "an id must have 1 to 256 characters, not 0"),
        ({"agent": "x" * 300}, "a: agent must have 1 to 256 characters, not 300"),
        ({"agent": "a\x1b[2J"}, r"a: agent must have printable characters only, not 'a\\x1b"),
        ({"text": "a\0b"}, "a: text must not contain a null character"),
        ({"text": "\ud800"}, "a: text is not a Unicode text"),
        ({"segment_tokens": (3, 0)}, "job a: segment_tokens must be 1 to"),
        ({"given": True, "plan": ""}, "job a: a given plan must not be empty"),
    ],
)
def test_a_job_that_cannot_be_is_refused(values: dict[str, Any], complaint: str) -> None:
    with pytest.raises(TraceError, match=complaint):
        dataclasses.replace(JOB, **values)


@pytest.mark.parametrize(
    ("values", "complaint"),
    [
        ({"output_tokens": 0}, "conversation c: output_tokens must be 1 to"),
        ({"prompt_tokens": -1}, "conversation c: prompt_tokens must be 0 to"),
        ({"tpot_s": math.inf}, "conversation c: tpot_s must be 0 to"),
        ({"deadline_s": math.nan}, "conversation c: deadline_s must be 0 to"),
        ({"weight": -1.0}, "conversation c: weight must be 0 to"),
    ],
)
def test_a_conversation_that_cannot_be_is_refused(values: dict[str, Any], complaint: str) -> None:
    with pytest.raises(TraceError, match=complaint):
        dataclasses.replace(TALK, **values)


def test_a_skill_takes_a_day_at_most() -> None:
    with pytest.raises(TraceError, match="seconds must be 0 to 86400"):
        SkillTime("s", 1e6)


def test_requests_are_in_order_and_have_ids_of_their_own() -> None:
    with pytest.raises(TraceError, match="requests must be in order of arrival"):
        Trace("", "", SMALL.jobs[::-1])
    with pytest.raises(TraceError, match="2 requests have the id 'a'"):
        Trace("", "", SMALL.jobs, (dataclasses.replace(TALK, id="a"),))
