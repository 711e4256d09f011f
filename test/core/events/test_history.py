from __future__ import annotations

from typing import Any

import pytest

from test.core.events.lines import event
from test.demo.plausible import events
from test.demo.test_summary import ask, done, history, segment
from test.demo.two_servers import run_until


def step(t: float, *ids: str) -> dict[str, Any]:
    return {"event": "step", "t": t, "s": 0.02, "ids": list(ids)}


def call(t: float, seconds: float) -> dict[str, Any]:
    return {"event": "call", "t": t, "id": "a1", "index": 0, "call": "mf(100)", "s": seconds}


def test_steps_in_a_row_are_one_slice() -> None:
    run = history(
        ask(0.0, "a1", False), step(0.00, "a1"), step(0.025, "a1", "b1"), step(0.05, "b1"),
        step(0.075, "a1"),
    )  # fmt: skip
    slices = [(s.start_s, round(s.end_s, 3)) for s in run.requests["a1"].slices]
    assert slices == [(0.0, 0.045), (0.075, 0.095)]
    assert [s.sequences for s in run.steps] == [1, 2, 1, 1]


def test_a_generation_is_queued_running_suspended_done() -> None:
    run = history(ask(0.0, "a1", False))
    request = run.requests["a1"]
    assert request.generation(0.1) == "queued"
    run.add(event(step(0.2, "a1")))
    assert request.generation(0.23) == "running"
    assert request.generation(2.0) == "suspended"
    run.add(event({"event": "end", "t": 2.0, "id": "a1", "code": "none"}))
    assert request.generation(2.1) == "done"


def test_a_segment_is_due_when_the_one_before_it_predicted() -> None:
    run = history(
        ask(0.0, "a1", False),
        {"event": "request", "t": 0.1, "id": "a1", "agent": "a", "task": "Go.", "ert_s": 1.0},
        segment(0.5, "a1", 0, 2.5),
        {"event": "report", "t": 2.0, "id": "a1", "index": 0, "state": "started", "due_s": 3.0},
        segment(2.4, "a1", 1, 5.0),
    )
    assert [d.due_s for d in run.requests["a1"].delivered] == [1.1, 3.0]
    assert run.requests["a1"].due_s == 5.0


def test_a_robot_waits_when_it_executes_nothing() -> None:
    run = history(ask(0.0, "a1", False), call(0.5, 1.0), call(2.0, 1.0))
    assert run.requests["a1"].waits(4.0) == [(0.0, 0.5), (1.5, 2.0), (3.0, 4.0)]
    assert run.current("a") is run.requests["a1"]
    run.add(event(done(3.0, "a1", 0.5)))
    assert run.requests["a1"].waits(4.0) == [(0.0, 0.5), (1.5, 2.0)]
    assert run.current("a") is None


def test_what_is_dropped_ends_in_the_middle_of_a_call() -> None:
    run = history(ask(0.0, "a1", False), call(0.5, 3.0), done(1.5, "a1", 0.5, outcome="canceled"))
    (cut,) = run.requests["a1"].execution()
    assert cut.end_s == pytest.approx(1.5)


@pytest.mark.parametrize("whole", [False, True])
def test_the_order_of_the_two_logs_does_not_matter(whole: bool) -> None:
    both = events(4, 5.0, 3, whole)
    mixed = history(*(line for _, line in both))
    server_first = history(*(e for f, e in sorted(both, key=lambda pair: pair[0] == "fleet")))
    assert {k: r.slices for k, r in mixed.requests.items()} == {
        k: r.slices for k, r in server_first.requests.items()
    }
    assert mixed.served == server_first.served > 0


def test_a_robot_that_began_at_time_zero_is_the_first() -> None:
    person = {"event": "person", "slo_class": "voice", "words_per_s": 3.0}
    run = history(
        {"event": "robot", "t": 0.0, "agent": "a"}, {**person, "t": 2.0, "agent": "p"},
        {"event": "robot", "t": 1.0, "agent": "b"},
    )  # fmt: skip
    assert run.began_s == 0.0


def test_texts_of_a_plan_that_failed_are_not_those_of_the_next_one() -> None:
    run = history(
        ask(0.0, "a1", False),
        segment(0.5, "a1", 0, 2.5) | {"text": "mf(100);"},
        segment(0.9, "a1", 1, 4.5) | {"text": "tp();"},
        {"event": "replan", "t": 1.0, "id": "a1", "epoch": 1, "message": "wind", "due_s": 1.0},
        segment(1.4, "a1", 0, 3.5) | {"text": "mb(30);", "epoch": 1},
    )
    texts = run.requests["a1"].texts
    assert texts == {(0, 0): "mf(100);", (0, 1): "tp();", (1, 0): "mb(30);"}


def test_steps_of_several_servers_are_counted_for_each() -> None:
    run = run_until(2.0)
    spans = {key: [(s.server, s.steps) for s in plan.slices] for key, plan in run.requests.items()}
    assert spans == {"a1": [("s2", 2)], "b1": [("s1", 2)]}
    assert [len(run.servers[name].steps) for name in ("s1", "s2")] == [2, 2]
    assert len(run.recent_steps(0.0)) == 4
    assert len(run.recent_steps(0.0, "s1")) == 2


def test_a_plan_of_a_lost_server_goes_on_at_another_one() -> None:
    assert [work.id for work in run_until(3.0).made_by("s2")] == ["a1"]
    going_on = run_until(4.2)
    plan = going_on.requests["a1"]
    assert (plan.server, plan.server_at(3.0), plan.server_at(0.5)) == ("s1", "s2", "")
    assert [work.id for work in going_on.made_by("s1")] == ["a1"]
    assert [span.server for span in plan.slices] == ["s2", "s1"]


def test_what_a_server_says_of_the_end_of_a_request_that_another_one_has_is_not_its_end() -> None:
    run = run_until(4.2)
    run.add(event({"event": "end", "t": 4.3, "id": "a1", "code": "canceled"}), "s2")
    assert not run.requests["a1"].generated
    run.add(event({"event": "end", "t": 4.4, "id": "a1", "code": "none"}), "s1")
    assert run.requests["a1"].generated
