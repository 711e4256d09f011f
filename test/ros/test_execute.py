"""Plans executed by a robot's callables: exactly what they say, and nothing after they are void."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from test.ros.random_plans import ROVER, ROVER_YAML
from test.ros.scripted_server import ScriptedServer
from test.skills.plans import DRONE
from timely_llm.core.errors import SkillFailed
from timely_llm.core.request import ErrorCode, PlanResult, ReportState
from timely_llm.core.segment import Segment
from timely_llm.ros.execution import Executed, Execution, Progress
from timely_llm.ros.pending import PlanClientError, PlanTimeout
from timely_llm.ros.plan_task import PlanTask
from timely_llm.skills.skill_set import SkillSet, parse_skill_set

SOON_S = 0.05
WAIT_S = 10.0


class Rover:
    """Notes what it is told to do; `values` are what its skills return or raise."""

    def __init__(self, **values: object) -> None:
        self.made: list[str] = []
        self.values = values

    def _do(self, name: str, *arguments: object) -> Any:
        self.made.append(f"{name}({','.join(map(repr, arguments))})")
        value = self.values.get(name)
        if callable(value):
            return value()
        if isinstance(value, BaseException):
            raise value
        return value

    def go(self, distance: int) -> Any:
        return self._do("go", distance)

    def say(self, text: str) -> Any:
        return self._do("say", text)

    def tilt(self, pan: float, how: str) -> Any:
        return self._do("tilt", pan, how)

    def sees(self, name: str) -> Any:
        return self._do("sees", name)

    def count(self, name: str) -> Any:
        return self._do("count", name)

    def read(self) -> Any:
        return self._do("read")

    def scan(self) -> Any:
        return self._do("scan")

    def free(self, side: str) -> Any:
        return self._do("free", side)


def run(server: ScriptedServer, skills: object, **options: Any) -> Executed:
    return server.start().execute(skills, timeout_s=options.pop("timeout_s", 2.0), **options)


def made(plan: str, rover: Rover) -> list[str]:
    """Return the calls of one plan that is executed to its end."""
    run(ScriptedServer(ROVER, [plan]), rover)
    return rover.made


def reasons(server: ScriptedServer) -> list[str]:
    return [r.value for r in server.reports if r.state is ReportState.FAILED]


def states(server: ScriptedServer) -> list[tuple[str, int]]:
    return [(report.state.name, report.index) for report in server.reports]


def later(work: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=work)
    thread.start()
    return thread


# What is called.


def drone(calls: list[str], found: bool) -> dict[str, Callable[..., object]]:
    def skill(name: str) -> Callable[..., object]:
        def do(*arguments: object) -> object:
            calls.append(f"{name}{arguments}")
            return found

        return do

    return {"s": skill("s"), "g": skill("g")}


def test_a_robot_does_not_go_to_a_cup_that_was_not_found() -> None:
    calls: list[str] = []
    done = run(
        ScriptedServer(DRONE, ["?s('cup'){g('cup');}"]), drone(calls, False), otherwise=print
    )
    assert calls == ["s('cup',)"]
    assert (done.value, done.result.error_code) == (None, ErrorCode.NONE)


def test_a_robot_goes_to_a_cup_that_was_found() -> None:
    calls: list[str] = []
    run(ScriptedServer(DRONE, ["?s('cup'){g('cup');}"]), drone(calls, True), otherwise=print)
    assert calls == ["s('cup',)", "g('cup',)"]


def test_a_loop_of_three_goes_three_times() -> None:
    calls: list[str] = []
    run(ScriptedServer(DRONE, ['3{g("C");}']), drone(calls, True),
        otherwise=print)  # fmt: skip
    assert calls == ["g('C',)"] * 3


def test_skills_are_methods_or_functions_and_get_typed_arguments() -> None:
    plan = "go(50);tilt(5,'slow');say('7');"
    rover = Rover()
    assert made(plan, rover) == ["go(50)", "tilt(5.0,'slow')", "say('7')"]
    given: list[tuple[object, ...]] = []
    names = {name: lambda *words: given.append(words) for name in ROVER.skills}
    run(ScriptedServer(ROVER, [plan]), names)
    assert given == [(50,), (5.0, "slow"), ("7",)]
    assert [type(word) for words in given for word in words] == [int, float, str, str]


def test_the_result_tells_what_was_done() -> None:
    done = run(ScriptedServer(ROVER, ["go(10);?sees('cat'){->'here';}"]), Rover(sees=True))
    assert (done.value, done.plan, done.epochs) == ("here", "go(10);?sees('cat'){->'here';}", 1)
    assert [(str(c.call), c.index, c.value, c.error) for c in done.calls] == [
        ("go(10)", 0, None, ""), ("sees('cat')", 1, True, ""),
    ]  # fmt: skip


def test_all_is_called_in_the_callers_thread() -> None:
    threads: set[threading.Thread] = set()
    note = lambda *_: threads.add(threading.current_thread())  # noqa: E731
    skills = dict.fromkeys(ROVER.skills, note)
    run(ScriptedServer(ROVER, ["go(10);say('a');"]), skills, on_progress=note)
    assert threads == {threading.current_thread()}


def test_progress_tells_of_segments_and_calls() -> None:
    seen: list[Progress] = []
    run(ScriptedServer(ROVER, ["?sees('cat'){go(10);}"]), Rover(sees=False),
        on_progress=seen.append)  # fmt: skip
    assert [(p.kind, p.index, p.text) for p in seen] == [
        ("started", 0, "?sees('cat'){"), ("call", 0, "?sees('cat'){"),
        ("returned", 0, "?sees('cat'){"), ("finished", 0, "?sees('cat'){"),
        ("started", 1, "go(10);}"), ("skipped", 1, "go(10);}"),
    ]  # fmt: skip
    assert seen[2].value is False


# What is reported.


def test_segments_are_reported_one_after_the_other() -> None:
    server = ScriptedServer(ROVER, ["go(10);?sees('cat'){go(20);}->True;"])
    run(server, Rover(sees=False))
    assert states(server) == [
        ("STARTED", 0), ("FINISHED", 0), ("STARTED", 1), ("FINISHED", 1),
        ("STARTED", 2), ("FINISHED", 2), ("STARTED", 3), ("FINISHED", 3), ("RETURNED", 0),
    ]  # fmt: skip
    durations = [r.duration_s for r in server.reports if r.state is ReportState.FINISHED]
    assert [seconds > 0 for seconds in durations] == [True, True, False, True]


@pytest.mark.parametrize(
    ("value", "text"), [("a cat", "a cat"), ("two\nlines", "two lines"), ("", "")]
)
def test_the_value_of_a_blocking_skill_is_reported(value: str, text: str) -> None:
    server = ScriptedServer(ROVER, ["scan();go(10);"])
    rover = Rover(scan=value)
    run(server, rover)
    assert (server.values, rover.made) == ([text], ["scan()", "go(10)"])


def test_a_boolean_value_is_reported_in_the_words_of_plans() -> None:
    server = ScriptedServer(ROVER, ["free('left');"])
    run(server, Rover(free=False))
    assert server.values == ["False"]


# What fails.


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (RuntimeError("the wheel\nis stuck"), "RuntimeError: the wheel is stuck"),
        (ValueError(), "ValueError"),
        (SkillFailed("a person is in the way"), "a person is in the way"),
        (SkillFailed(""), "SkillFailed"),
        (OSError("\ud800x\x1b[31m"), "OSError: x [31m"),
        (RuntimeError("x" * 9000), f"RuntimeError: {'x' * 283}..."),
    ],
)
def test_a_raised_exception_is_a_failed_segment_with_its_sentence(
    error: Exception, reason: str
) -> None:
    server = ScriptedServer(ROVER, ["say('a');go(10);say('b');", "say('c');"])
    rover = Rover(go=error)
    done = run(server, rover)
    assert [text.replace("  ", " ") for text in reasons(server)] == [reason]
    assert rover.made == ["say('a')", "go(10)", "say('c')"]
    assert (done.epochs, done.plan) == (2, "say('c');")
    assert [(c.epoch, bool(c.error)) for c in done.calls] == [(0, False), (0, True), (1, False)]


def test_a_failure_in_a_later_round_is_the_loops() -> None:
    rounds = iter([None, OSError("stuck")])

    def go() -> None:
        if error := next(rounds):
            raise error

    server = ScriptedServer(ROVER, ["2{go(10);say('a');}", "say('b');"])
    run(server, Rover(go=go))
    assert ("FAILED", 2) in states(server)


def test_after_too_many_failures_the_error_is_raised_with_what_was_done() -> None:
    server = ScriptedServer(ROVER, ["go(10);"])
    with pytest.raises(PlanClientError, match="segment 0 failed: OSError: stuck") as raised:
        run(server, Rover(go=OSError("stuck")))
    assert raised.value.code is ErrorCode.EXECUTION_FAILED
    assert [(str(c.call), c.error) for c in raised.value.calls] == [("go(10)", "OSError: stuck")]


class Scalar:
    """What numpy's scalars look like."""

    shape = ()

    def __init__(self, value: object) -> None:
        self._value = value

    def item(self) -> object:
        return self._value


@pytest.mark.parametrize(
    ("condition", "value", "reason"),
    [
        ("sees('a')", None, "sees must return True or False, not None"),
        ("sees('a')", "no", "sees must return True or False, not 'no'"),
        ("sees('a')", 0, "sees must return True or False, not 0"),
        ("sees('a')", [], "sees must return True or False, not a value of type list"),
        ("sees('a')<3", True, "sees returned True, which is not comparable by < with 3"),
        ("count('a')", True, "count must return a number, not True"),
        ("count('a')>1", "2", "count must return a number, not '2'"),
        ("count('a')>1", float("nan"), "count must return a number, not NaN"),
        ("count('a')>1", 10**4000, "count must return a number, not a value of type int"),
        ("count('a')>=True", 1, "count returned 1, which is not comparable by >= with True"),
        ("read()<3", "2", "read returned '2', which is not comparable by < with 3"),
        ("read()", None, "read must return a text, not None"),
        ("read()", "\ud800", "read returned a text that is no Unicode"),
        ("go(10)", None, "go must return True, False, a number or a text, not None"),
    ],
)
def test_a_value_that_means_nothing_in_a_condition_fails(
    condition: str, value: object, reason: str
) -> None:
    name = condition.partition("(")[0]
    server = ScriptedServer(ROVER, [f"?{condition}{{say('in');}}say('after');", "say('b');"])
    rover = Rover(**{name: value})
    run(server, rover)
    assert reasons(server) == [reason]
    assert rover.made[1:] == ["say('b')"]


@pytest.mark.parametrize(
    ("condition", "value", "holds"),
    [
        ("sees('a')", True, True),
        ("sees('a')==False", False, True),
        ("sees('a')", Scalar(True), True),
        ("sees('a')!=True", Scalar(False), True),
        ("sees('a')==1", True, True),
        ("count('a')", 0, False),
        ("count('a')", 0.5, True),
        ("count('a')==2", 2.0, True),
        ("count('a')<2.5", Scalar(2), True),
        ("count('a')=='2'", 2, False),
        ("count('a')!='2'", 2, True),
        ("count('a')<5", float("inf"), False),
        ("read()", "", False),
        ("read()", "no", True),
        ("read()=='exit'", "exit", True),
        ("read()<'b'", "a", True),
        ("go(10)", True, True),
        ("go(10)", False, False),
    ],
)
def test_a_condition_is_decided_by_the_languages_rules(
    condition: str, value: object, holds: bool
) -> None:
    name = condition.partition("(")[0]
    assert ("say('in')" in made(f"?{condition}{{say('in');}}", Rover(**{name: value}))) is holds


@pytest.mark.parametrize("value", [None, 7, True, b"cat"])
def test_a_blocking_skill_must_return_what_it_declares(value: object) -> None:
    server = ScriptedServer(ROVER, ["scan();go(10);", "say('b');"])
    rover = Rover(scan=value)
    run(server, rover)
    assert reasons(server)[0].startswith("scan must return a text, not ")
    assert (rover.made, server.values) == (["scan()", "say('b')"], [])


def test_the_value_of_a_statement_is_not_used() -> None:
    assert made("sees('a');go(10);", Rover(sees=None, go="what")) == ["sees('a')", "go(10)"]


def test_a_call_that_only_promises_to_do_something_fails() -> None:
    async def drive() -> None: ...

    server = ScriptedServer(ROVER, ["go(10);", "say('b');"])
    run(server, Rover(go=lambda: drive()))
    assert reasons(server) == ["go returned a coroutine, so nothing was done"]


# Skills that do not fit.


def refusal(skills: object, skill_set: SkillSet = ROVER, **options: Any) -> str:
    server = ScriptedServer(skill_set, ["go(10);"]) if skill_set is ROVER else None
    task = server.start() if server else PlanTask("r", "me", Nobody(), skill_set.name)
    with pytest.raises(PlanClientError) as raised:
        task.execute(skills, skill_set=skill_set, timeout_s=SOON_S, **options)
    assert not server or (server.reports, server.canceled) == ([], 0)
    return str(raised.value)


class Nobody:
    """A client whose server says nothing."""

    def report(self, report: object) -> None: ...

    def cancel(self, request_id: str) -> None: ...

    def skill_set(self, name: str) -> SkillSet:
        raise PlanClientError(f"unknown skill set {name!r}")


def test_skills_without_a_callable_are_refused_before_anything_is_done() -> None:
    rover = Rover()
    names = {name: getattr(rover, name) for name in ("go", "say")}
    assert refusal(names | {"sea": rover.sees}) == (
        "skills of 'rover' have no callable: tilt, sees, count, read, scan, free"
        " (given: go, say, sea)"
    )
    assert refusal(object()).startswith("skills of 'rover' have no callable: go, say, tilt")
    assert refusal({}).endswith("scan, free (given: none)")
    assert rover.made == []


def test_skills_that_are_absent_fail_and_say_so() -> None:
    server = ScriptedServer(ROVER, ["go(10);say('a');", "go(20);"])
    rover = Rover()
    skills = {name: getattr(rover, name) for name in ROVER.skills if name != "say"}
    run(server, skills, absent=["say"])
    assert reasons(server) == ["this robot has no skill say"]
    assert rover.made == ["go(10)", "go(20)"]
    assert refusal(skills, absent=["sya"]).startswith("skill set 'rover' has no skill sya that")


def test_otherwise_takes_the_calls_of_all_other_skills() -> None:
    taken: list[str] = []
    rover = Rover()
    run(ScriptedServer(ROVER, ["go(10);say('a');"]), {"go": rover.go},
        otherwise=lambda call: taken.append(str(call)))  # fmt: skip
    assert (rover.made, taken) == (["go(10)"], ["say('a')"])


async def _promise(distance: int) -> None: ...


def _stepwise(distance: int) -> Any:
    yield distance


@pytest.mark.parametrize(
    ("go", "words"),
    [
        (7, "the callable of go must be callable, not int"),
        (lambda: 0, "the callable of go must take 1 argument by position, not ()"),
        (lambda a, b: 0, "the callable of go must take 1 argument by position, not (a, b)"),
        (Rover.go, "the callable of go must take 1 argument by position, not (self, distance"),
        (_promise, "the callable of go is a coroutine: plain functions are executed"),
        (_stepwise, "the callable of go is a generator: plain functions are executed"),
    ],
)
def test_a_callable_that_cannot_be_called_as_plans_do_is_refused(go: Any, words: str) -> None:
    rover = Rover()
    skills = {name: getattr(rover, name) for name in ROVER.skills}
    assert refusal(skills | {"go": go}).startswith(words)


def test_another_skill_set_than_the_plans_is_refused(tmp_path: Path) -> None:
    task = ScriptedServer(ROVER, ["go(10);"]).start()
    with pytest.raises(PlanClientError, match="of 'rover', not of the skill set 'drone'"):
        task.execute(Rover(), skill_set=DRONE)
    with pytest.raises(PlanClientError, match="cannot read"):
        task.execute(Rover(), skill_set=tmp_path / "none.yaml")
    path = tmp_path / "rover.yaml"
    path.write_text(ROVER_YAML)
    assert task.execute(Rover(), skill_set=str(path), timeout_s=2.0).plan == "go(10);"


@pytest.mark.parametrize("language", ["sentence", "regex"])
def test_statements_without_a_skill_go_to_otherwise(language: str) -> None:
    rules = {"sentence": "language: sentence", "regex": "language: regex\nrules: ['[A-Z]+\\.']"}
    story = parse_skill_set(f"name: story\nprompt: Tell.\n{rules[language]}\n")
    words = "have statements without a skill: pass otherwise="
    assert words in refusal({}, story)
    told: list[object] = []
    task = PlanTask("r", "me", Nobody(), "story")
    for index, text in enumerate(("ONE.", " TWO.")):
        task.offer(Segment("r", "me", index, text, final=index == 1))
    task.finish(PlanResult("r", "me", ErrorCode.NONE, "", "ONE. TWO."))
    task.execute({}, skill_set=story, otherwise=lambda call: told.append(call.arguments[0]))
    assert [str(text).strip() for text in told] == ["ONE.", "TWO."]


# What comes is checked again.


def offered(*texts: str, final: bool = True) -> tuple[PlanTask, list[Any]]:
    """Return a task with these segments, and its reports."""
    sent: list[Any] = []

    class Post(Nobody):
        def report(self, report: Any) -> None:
            sent.append(report)
            if report.state is ReportState.FAILED:
                task.finish(PlanResult("r", "me", ErrorCode.EXECUTION_FAILED, report.value))

    task = PlanTask("r", "me", Post(), "rover")
    for index, text in enumerate(texts):
        task.offer(Segment("r", "me", index, text, final=final and index == len(texts) - 1))
    return task, sent


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("go(9);", "distance must be 10 to 500, not 9"),
        ("go('far');", "distance must be a number, not the text 'far'"),
        ("say('a');fly();", "unknown skill 'fly'"),
        ("say('a');go(501);say('b');", "distance must be 10 to 500, not 501"),
        ("tilt(0,'" + "x" * 41 + "');", "longer than 40"),
    ],
)
def test_nothing_of_a_segment_that_breaks_the_rules_is_executed(text: str, words: str) -> None:
    rover = Rover()
    task, _ = offered("go(10);", text)
    with pytest.raises(PlanClientError, match=words.replace("(", r"\(")):
        task.execute(rover, skill_set=ROVER, timeout_s=1.0)
    assert rover.made == ["go(10)"]


def test_a_last_segment_that_comes_again_with_a_call_more_is_refused() -> None:
    rover = Rover()
    task, _ = offered("?sees('a'){", "go(10);", final=False)
    rover.values["sees"] = True
    rover.values["go"] = lambda: task.offer(Segment("r", "me", 1, "go(10);}go(500);", final=True))
    with pytest.raises(PlanClientError, match="segment 1 came again with other words"):
        task.execute(rover, skill_set=ROVER, timeout_s=1.0)
    assert rover.made == ["sees('a')", "go(10)"]


def test_a_segment_is_executed_once_however_often_it_comes() -> None:
    rover = Rover()
    server = ScriptedServer(ROVER, ["go(10);say('a');"])

    def again() -> None:
        for segment in server._plan * 2:
            server.task.offer(segment)

    rover.values["go"] = rover.values["say"] = again
    run(server, rover)
    assert rover.made == ["go(10)", "say('a')"]


def test_segments_that_got_lost_are_made_up_for_by_the_result() -> None:
    rover = Rover(sees=False)
    task = PlanTask("r", "me", Nobody(), "rover")
    task.offer(Segment("r", "me", 0, "2{go(10);"))
    task.offer(Segment("r", "me", 3, "say('b');", final=True))
    plan = "2{go(10);?sees('a'){say('no');}}say('b');"
    task.finish(PlanResult("r", "me", ErrorCode.NONE, "", plan, 4))
    assert task.execute(rover, skill_set=ROVER).plan == plan
    assert rover.made == ["go(10)", "sees('a')"] * 2 + ["say('b')"]


@pytest.mark.parametrize("plan", ["go(20);say('b');", "2{go(10);say('b');"])
def test_a_whole_plan_that_does_not_fit_is_not_executed(plan: str) -> None:
    rover = Rover()
    task = PlanTask("r", "me", Nobody(), "rover")
    task.offer(Segment("r", "me", 0, "2{go(10);"))
    task.finish(PlanResult("r", "me", ErrorCode.NONE, "", plan, 4))
    with pytest.raises(PlanClientError, match=r"a segment failed \(.*\) after its request"):
        task.execute(rover, skill_set=ROVER, timeout_s=1.0)
    assert rover.made == ["go(10)"]


# What ends it.


def running(server: ScriptedServer, meanwhile: Callable[[Execution], object]) -> list[str]:
    """Return what is called of a plan if something happens in its first call, `go`."""
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


def test_a_newer_epoch_takes_the_place_of_a_plan_whose_skill_runs() -> None:
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
    task, sent = offered("go(10);", "say('after');" if while_running else "", final=False)
    task._segments.pop(1) if not while_running else None
    end = PlanResult("r", "me", code, "one sentence", "go(10);")
    rover.values["go"] = (lambda: task.finish(end)) if while_running else None
    thread = threading.Timer(SOON_S, task.finish, (end,))
    if not while_running:
        thread.start()
    with pytest.raises(PlanClientError, match=r"^one sentence$") as raised:
        task.execute(rover, skill_set=ROVER, timeout_s=WAIT_S)
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


def test_a_plan_whose_segments_were_read_is_not_executed_again() -> None:
    server = ScriptedServer(ROVER, ["go(10);say('a');"])
    task = server.start()
    next(task.segments(SOON_S))
    rover = Rover()
    with pytest.raises(PlanClientError, match="a segment is executed once"):
        task.execute(rover, skill_set=ROVER)
    assert rover.made == []


# Results without reading.


def test_the_result_of_a_plan_that_nobody_reads_comes_by_itself() -> None:
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
