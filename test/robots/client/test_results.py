"""Results of plans that no program executes, or another program."""

from __future__ import annotations

import threading

import pytest

from test.robots.client.random_plans import ROVER
from test.robots.client.rover import SOON_S, WAIT_S, Nobody, Rover, later, states
from test.robots.client.scripted_server import ScriptedServer
from timely_llm.core.request import ErrorCode, PlanResult, ReportState
from timely_llm.core.segment import Segment
from timely_llm.robots.client.pending import PlanClientError, PlanTimeout
from timely_llm.robots.client.plan_task import PlanTask


def test_the_result_of_an_unread_plan_comes_by_itself() -> None:
    server = ScriptedServer(ROVER, ["go(10);?sees('a'){say('b');}->True;"])
    result = server.start().result(2.0)
    assert result.plan == "go(10);?sees('a'){say('b');}->True;"
    reported = [(r.state, r.index, r.duration_s) for r in server.reports]
    assert reported == [(ReportState.FINISHED, index, 0.0) for index in range(4)], "skipped"


def test_the_result_of_a_plan_that_was_read_in_part_comes_by_itself() -> None:
    server = ScriptedServer(ROVER, ["go(10);say('a');say('b');"])
    task = server.start()
    reading = task.segments(SOON_S)
    first = next(reading)
    task.started(first)
    task.finished(first, 1.5)
    assert task.result(2.0).plan == "go(10);say('a');say('b');"
    assert states(server) == [("STARTED", 0), ("FINISHED", 0), ("FINISHED", 1), ("FINISHED", 2)]
    assert [r.duration_s for r in server.reports[1:]] == [1.5, 0.0, 0.0]


@pytest.mark.parametrize("read", [0, 1, 2])
def test_a_plan_that_waits_for_a_value_says_so_at_once(read: int) -> None:
    server = ScriptedServer(ROVER, ["go(10);scan();say('b');"])
    task = server.start()
    reading = task.segments(SOON_S)
    for _ in range(read):
        next(reading)
    with pytest.raises(PlanClientError, match=r"the plan waits for the value of scan\(\): exec"):
        task.result(WAIT_S)
    if not read:  # it can still be executed
        rover = Rover(scan="a cat")
        task.execute(rover, timeout_s=2.0)
        assert rover.made == ["go(10)", "scan()", "say('b')"]


def test_a_plan_that_was_failed_and_is_not_read_any_more_has_a_result() -> None:
    server = ScriptedServer(ROVER, ["go(10);say('a');", "say('b');say('c');"])
    task = server.start()
    task.failed(next(task.segments(SOON_S)), "no")
    result = task.result(2.0)
    assert (result.epoch, result.plan) == (1, "say('b');say('c');")


def test_a_plan_that_another_thread_reads_is_waited_for() -> None:
    server = ScriptedServer(ROVER, ["go(10);say('a');"])
    task = server.start()
    begun, go_on = threading.Event(), threading.Event()

    def execute() -> None:
        for segment in task.segments(WAIT_S):
            begun.set()
            go_on.wait(WAIT_S)
            task.finished(segment, 1.0)

    thread = later(execute)
    assert begun.wait(WAIT_S)
    with pytest.raises(PlanTimeout, match=r"did not end within 0.05 s"):
        task.result(SOON_S)
    assert server.reports == []
    go_on.set()
    assert task.result(WAIT_S).error_code is ErrorCode.NONE
    thread.join(WAIT_S)
    assert {r.duration_s for r in server.reports} == {1.0}


def test_a_plan_that_another_thread_executes_is_waited_for() -> None:
    server = ScriptedServer(ROVER, ["go(10);say('a');"])
    rover = Rover(go=lambda: threading.Event().wait(SOON_S))
    task = server.start()
    begun = threading.Event()
    thread = later(lambda: task.execute(rover, on_progress=lambda _: begun.set()))
    assert begun.wait(WAIT_S)
    assert task.result(WAIT_S).error_code is ErrorCode.NONE
    thread.join(WAIT_S)
    assert rover.made == ["go(10)", "say('a')"]


def test_a_plan_that_another_program_executes_is_waited_for() -> None:
    sent: list[object] = []

    class Post(Nobody):
        def report(self, report: object) -> None:
            sent.append(report)

    task = PlanTask("r", "me", Post(), "rover", elsewhere=True)
    task.offer(Segment("r", "me", 0, "go(10);", final=True))
    with pytest.raises(PlanTimeout):
        task.result(SOON_S)
    assert sent == []


def test_a_result_that_does_not_begin_with_what_was_read_is_refused() -> None:
    task = PlanTask("r", "me", Nobody(), "rover")
    first = Segment("r", "me", 0, "go(10);")
    task.offer(first)
    reading = task.segments(SOON_S)
    assert next(reading) == first
    task.finish(PlanResult("r", "me", ErrorCode.NONE, "", "say('a');go(10);", 2))
    with pytest.raises(PlanClientError, match="does not begin with the segments read"):
        next(reading)
