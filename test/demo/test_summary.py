"""A run written by hand, with numbers that can be checked by hand."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from test.core.events.lines import event
from timely_llm.demo.cloud import DemoHistory
from timely_llm.demo.summary import Summary


def ask(t: float, request_id: str, urgent: bool) -> dict[str, Any]:
    return {
        "event": "ask", "t": t, "id": request_id, "agent": request_id[0], "urgent": urgent,
        "task": "Go.", "beta": 1.0, "alpha": -2.0, "ert_s": 1.0,
    }  # fmt: skip


def segment(t: float, request_id: str, index: int, due_s: float) -> dict[str, Any]:
    return {"event": "segment", "t": t, "id": request_id, "index": index, "text": "mf(100);",
            "predicted_s": 2.0, "final": False, "due_s": due_s, "epoch": 0,
            "blocking": False}  # fmt: skip


def done(t: float, request_id: str, response_s: float, **changes: Any) -> dict[str, Any]:
    return {
        "event": "done", "t": t, "id": request_id, "agent": request_id[0], "outcome": "finished",
        "error_code": 0, "error_msg": "", "response_s": response_s, "waiting_s": response_s,
        "utility": 1.0, "recomputed_tokens": 0, **changes,
    }  # fmt: skip


def history(*lines: Mapping[str, Any]) -> DemoHistory:
    made = DemoHistory()
    for line in lines:
        made.add(event(line))
    return made


def test_each_class_has_its_own_numbers() -> None:
    run = history(
        {"event": "ready", "t": 9.0},
        ask(10.0, "a1", True),
        ask(10.0, "b1", False),
        segment(10.2, "a1", 0, 12.2),
        segment(10.5, "b1", 0, 12.5),
        segment(12.0, "b1", 1, 14.5),
        segment(12.1, "b1", 1, 14.5),  # the last one again, only to say that it is the last
        done(12.3, "a1", 0.3, utility=1.5),
        ask(13.0, "a2", True),
        ask(13.0, "b2", False),
        ask(13.0, "c1", True),
        done(13.5, "a2", 0.1, utility=2.0, waiting_s=0.2, recomputed_tokens=4),
        done(13.6, "c1", -1.0, outcome="canceled", utility=0.0),
        done(14.0, "b1", 0.6, waiting_s=0.8),
        done(14.2, "b2", -1.0, outcome="error", error_code=6, error_msg="no call", utility=0.0),
    )
    assert Summary.of(run).as_json() == {
        "requests": 5,
        "served": 3,
        "finished": 3,
        "share_first": 0.6,
        "share_finished": 0.6,
        "share_served": 0.6,
        "segments": 3,
        "recomputed_tokens": 4,
        "response_s": {"urgent": {"p50": 0.2, "p95": 0.29}, "normal": {"p50": 0.6, "p95": 0.6}},
        "waiting_s": {"urgent": 0.25, "normal": 0.8},
        "utility": {"urgent": 1.1667, "normal": 0.5},
        "errors": 1,
        "error_messages": ["b2: no call (MALFORMED_PLAN)"],
        "conversations": {},
    }


def test_a_request_without_an_end_was_never_answered() -> None:
    summary = Summary.of(history(ask(1.0, "a1", True)))
    assert summary.share_first == summary.share_finished == 0.0
    assert summary.urgent.utility == 0.0
    assert summary.urgent.p50_s is None


def test_a_run_without_requests_has_nothing_to_measure() -> None:
    numbers = Summary.of(history({"event": "ready", "t": 1.0})).as_json()
    assert numbers["share_first"] is numbers["share_finished"] is None
    assert numbers["response_s"] == {
        "urgent": {"p50": None, "p95": None},
        "normal": {"p50": None, "p95": None},
    }
    assert numbers["utility"] == {"urgent": None, "normal": None}


def test_a_plan_that_ended_after_its_first_segment_is_not_finished() -> None:
    summary = Summary.of(
        history(
            ask(1.0, "a1", True),
            ask(1.0, "b1", False),
            done(2.0, "a1", 0.2, outcome="canceled"),
            done(3.0, "b1", 0.2),
        )
    )
    assert (summary.share_first, summary.share_finished) == (1.0, 0.5)


def test_requests_of_other_clients_do_not_count() -> None:
    stranger = {"event": "request", "t": 1.0, "id": "x", "agent": "x", "task": "Go.", "ert_s": 1.0}
    assert Summary.of(history(stranger)).requests == 0
