from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from test.core.events.lines import event
from timely_llm.core.events.decisions import (
    DecisionsError,
    DecisionSpan,
    decisions_by_request,
    of_request,
    waits,
)
from timely_llm.core.events.schema import EndEvent, StepEvent, StepPlanEvent
from timely_llm.core.reason import Cause, Reason


def plan(t: float, **why: Reason) -> StepPlanEvent:
    """Return the event of a plan."""
    return StepPlanEvent(t, tuple(why.items()))


def test_the_same_cause_in_plans_that_follow_each_other_is_one_span() -> None:
    spans = decisions_by_request(
        [
            plan(0.0, a=Reason(Cause.MEMORY, 30), b=Reason(Cause.RUNS)),
            StepEvent(0.0, 1.0, ("b",)),
            plan(1.0, a=Reason(Cause.MEMORY, 10), b=Reason(Cause.RUNS)),
            plan(2.0, a=Reason(Cause.PRIORITY, 0.5), b=Reason(Cause.RUNS)),
            plan(3.0, a=Reason(Cause.RUNS)),
            EndEvent(3.5, "a", "none", ""),
            plan(9.0, c=Reason(Cause.ALONE)),
        ]
    )
    assert spans["a"] == [
        DecisionSpan(Cause.MEMORY, 0.0, 2.0, 2, 10, 30),
        DecisionSpan(Cause.PRIORITY, 2.0, 3.0, 1, 0.5, 0.5),
        DecisionSpan(Cause.RUNS, 3.0, 3.5, 1),
    ]
    assert spans["b"] == [DecisionSpan(Cause.RUNS, 0.0, 3.0, 3)]
    assert str(spans["a"][0]) == "waits: memory, 10 to 30 tokens of KV missing"


def test_a_request_that_was_not_in_the_pool_has_a_new_span() -> None:
    spans = decisions_by_request(
        [
            plan(0.0, a=Reason(Cause.RUNS)),
            plan(1.0, b=Reason(Cause.RUNS)),
            plan(2.0, a=Reason(Cause.RUNS)),
        ]
    )
    assert [(span.start_s, span.end_s) for span in spans["a"]] == [(0.0, 1.0), (2.0, 2.0)]


@pytest.mark.parametrize(
    "line",
    [{"event": "segment", "blocking": True}, {"event": "complete"}, {"event": "end"}],
)
def test_a_span_ends_where_the_request_leaves_the_pool(line: dict[str, Any]) -> None:
    left = event({**line, "t": 0.2, "id": "a"})
    spans = decisions_by_request(
        [plan(0.0, a=Reason(Cause.RUNS)), left, plan(30.0, b=Reason(Cause.RUNS))]
    )
    assert spans["a"] == [DecisionSpan(Cause.RUNS, 0.0, 0.2, 1)]


causes = st.sampled_from(Cause)


@given(st.lists(st.dictionaries(st.sampled_from("abc"), causes), max_size=30))
def test_spans_have_every_decision_once_and_do_not_overlap(plans: list[dict[str, Cause]]) -> None:
    events = [
        plan(float(t), **{key: Reason(cause) for key, cause in why.items()})
        for t, why in enumerate(plans)
    ]
    for key, spans in decisions_by_request(events).items():
        assert sum(span.plans for span in spans) == sum(key in why for why in plans)
        for before, after in pairwise(spans):
            assert before.end_s <= after.start_s
        for span in spans:
            first = int(span.start_s)
            same = plans[first : first + span.plans]
            assert all(why.get(key) is span.cause for why in same)


def test_waits_are_counted_by_cause() -> None:
    found = waits(
        [
            DecisionSpan(Cause.MEMORY, 0.0, 1.0, 1),
            DecisionSpan(Cause.RUNS, 1.0, 3.0, 1),
            DecisionSpan(Cause.NOT_DUE, 3.0, 8.0, 1),
            DecisionSpan(Cause.MEMORY, 8.0, 8.5, 1),
        ]
    )
    assert (found.joined_s, found.waited_s, found.deferred_s) == (2.0, 1.5, 5.0)
    assert found.causes == ((Cause.NOT_DUE, 5.0), (Cause.MEMORY, 1.5))


def test_an_unknown_request_is_refused_with_those_that_are_known() -> None:
    spans = decisions_by_request([plan(0.0, **{f"r{i}": Reason(Cause.RUNS) for i in range(12)})])
    assert len(of_request(spans, "r3")) == 1
    with pytest.raises(DecisionsError, match=r"about 'x', only about 'r0', .*'r7' and 4 more"):
        of_request(spans, "x")
