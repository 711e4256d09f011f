"""What ends an execution: nothing more of a void plan is executed or reported."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from test.robots.client.random_plans import ROVER
from test.robots.client.rover import SOON_S, WAIT_S, Rover, later, offered, reasons, run, states
from test.robots.client.scripted_server import ScriptedServer
from timely_llm.core.request import ErrorCode, PlanResult, ReportState
from timely_llm.robots.client.execution import Progress
from timely_llm.robots.client.open_plan import Execution
from timely_llm.robots.client.pending import PlanClientError, PlanTimeout


def running(server: ScriptedServer, meanwhile: Callable[[Execution], object]) -> list[str]:
    """Return the calls of a plan, with an event during its first call, `go`."""
    calls: list[str] = []

    def go(distance: int, *, execution: Execution) -> None:
        calls.append(f"go({distance})")
        if distance == 10:
            meanwhile(execution)

    run(server, {"go": go}, otherwise=lambda call: calls.append(str(call)))
    return calls


def test_a_running_skill_gets_to_know_of_a_cancel_from_another_thread() -> None:
    server = ScriptedServer(ROVER, ["go(10);say('after');"])
    seen: list[object] = []

    def meanwhile(execution: Execution) -> None:
        seen.append(execution.canceled)
        thread = later(lambda: seen.append(server.task.cancel(WAIT_S)))
        seen.append(execution.wait(WAIT_S))
        thread.join(WAIT_S)
        seen.append(execution.reason)

    with pytest.raises(PlanClientError) as raised:
        running(server, meanwhile)
    assert raised.value.code is ErrorCode.CANCELED
    assert [str(c.call) for c in raised.value.calls] == ["go(10)"]
    assert sorted(map(str, seen)) == ["False", "True", "True", "canceled by a client"]
    assert states(server) == [("STARTED", 0)], "nothing is reported any more"


def test_a_skill_may_cancel_its_own_execution() -> None:
    server = ScriptedServer(ROVER, ["go(10);say('after');"])
    with pytest.raises(PlanClientError) as raised:
        running(server, lambda execution: execution.cancel())
    assert (raised.value.code, server.canceled) == (ErrorCode.CANCELED, 1)


def test_a_newer_epoch_replaces_a_plan_with_a_running_skill() -> None:
    """For example when a bumper's thread reports the failure."""
    server = ScriptedServer(ROVER, ["go(10);say('old');", "say('new');"])
    seen: list[str] = []

    def meanwhile(execution: Execution) -> None:
        first = server._plan[0]
        thread = later(lambda: server.task.failed(first, "the bumper was hit", 1.0))
        assert execution.wait(WAIT_S)
        thread.join(WAIT_S)
        seen.append(execution.reason)

    assert running(server, meanwhile) == ["go(10)", "say('new')"]
    assert seen == ["a new plan takes the place of this one"]
    assert reasons(server) == ["the bumper was hit"]
    assert not [r for r in server.reports if r.epoch == 0 and r.state is ReportState.FINISHED]


def test_a_value_that_comes_after_a_newer_epoch_is_reported_nowhere() -> None:
    server = ScriptedServer(ROVER, ["scan();say('old');", "say('new');"])

    def scan() -> str:
        server.task.failed(server._plan[0], "the bumper was hit", 1.0)
        return "a cat"

    rover = Rover(scan=scan)
    run(server, rover)
    assert rover.made == ["scan()", "say('new')"]
    assert "a cat" not in [report.value for report in server.reports]


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(3)])
def test_an_interrupt_in_a_skill_cancels_the_request_and_propagates(error: BaseException) -> None:
    server = ScriptedServer(ROVER, ["go(10);say('after');"])
    rover = Rover(go=error)
    with pytest.raises(type(error)):
        run(server, rover)
    assert (rover.made, server.canceled) == (["go(10)"], 1)


def test_an_error_of_the_progress_callback_cancels_the_request_and_propagates() -> None:
    server = ScriptedServer(ROVER, ["go(10);say('after');"])
    rover = Rover()

    def fail(progress: Progress) -> None:
        if progress.kind == "finished":
            raise LookupError("no display")

    with pytest.raises(LookupError):
        run(server, rover, on_progress=fail)
    assert (rover.made, server.canceled) == (["go(10)"], 1)


@pytest.mark.parametrize(
    "code",
    [ErrorCode.MALFORMED_PLAN, ErrorCode.ENGINE_FAILED, ErrorCode.NO_ANSWER,
     ErrorCode.SHUTTING_DOWN],
)  # fmt: skip
@pytest.mark.parametrize("while_running", [True, False])
def test_nothing_more_is_executed_when_the_request_ends_with_an_error(
    code: ErrorCode, while_running: bool
) -> None:
    rover = Rover()
    texts = ["go(10);", "say('after');"] if while_running else ["go(10);"]
    task, sent = offered(*texts, final=False)
    end = PlanResult("r", "me", code, "one sentence", "go(10);")

    def finish(progress: Progress) -> None:
        """End the request while the first call is made, or when its segment is done."""
        if progress.kind == ("call" if while_running else "finished"):
            task.finish(end)

    with pytest.raises(PlanClientError, match=r"^one sentence$") as raised:
        task.execute(rover, skill_set=ROVER, timeout_s=WAIT_S, on_progress=finish)
    assert (raised.value.code, rover.made) == (code, ["go(10)"])
    assert (ReportState.FINISHED in [report.state for report in sent]) is not while_running


def test_a_server_that_is_gone_is_not_waited_for_for_ever() -> None:
    rover = Rover()
    task, _ = offered("go(10);", final=False)
    with pytest.raises(PlanTimeout, match=r"sent no segment within 0.05 s") as raised:
        task.execute(rover, skill_set=ROVER, timeout_s=SOON_S)
    assert [str(call.call) for call in raised.value.calls] == ["go(10)"]


def test_a_client_that_is_closed_executes_nothing_more() -> None:
    rover = Rover()
    task, _ = offered("go(10);", "say('after');")
    rover.values["go"] = lambda: task.close("the client is closed")
    with pytest.raises(PlanClientError, match="the client is closed"):
        task.execute(rover, skill_set=ROVER, timeout_s=1.0)
    assert rover.made == ["go(10)"]


def test_a_plan_is_executed_once_and_by_one() -> None:
    server = ScriptedServer(ROVER, ["go(10);say('a');"])
    seen: list[str] = []

    def meanwhile() -> None:
        for wrong in (
            lambda: server.task.execute(Rover(), skill_set=ROVER),
            lambda: next(server.task.segments(SOON_S)),
        ):
            with pytest.raises(PlanClientError) as raised:
                wrong()
            seen.append(str(raised.value))

    run(server, Rover(go=meanwhile))
    assert seen == [
        "request 'r' is being executed already",
        "segments of request 'r' are taken by execute()",
    ]
    with pytest.raises(PlanClientError, match="was executed already"):
        server.task.execute(Rover(), skill_set=ROVER)


def test_a_plan_with_segments_that_were_read_is_not_executed_again() -> None:
    server = ScriptedServer(ROVER, ["go(10);say('a');"])
    task = server.start()
    next(task.segments(SOON_S))
    rover = Rover()
    with pytest.raises(PlanClientError, match="a segment is executed once"):
        task.execute(rover, skill_set=ROVER)
    assert rover.made == []
