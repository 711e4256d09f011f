"""Plans executed by a robot's callables: exactly what they say."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from test.robots.client.random_plans import ROVER
from test.robots.client.rover import Rover, made, reasons, run, states
from test.robots.client.scripted_server import ScriptedServer
from test.skills.plans import DRONE
from timely_llm.core.errors import SkillFailed
from timely_llm.core.request import ErrorCode, ReportState
from timely_llm.robots.client.execution import Progress
from timely_llm.robots.client.pending import PlanClientError

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


def test_the_result_has_the_calls_and_the_value() -> None:
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


def test_progress_shows_segments_and_calls() -> None:
    seen: list[Progress] = []
    run(ScriptedServer(ROVER, ["?sees('cat'){go(10);}"]), Rover(sees=False),
        on_progress=seen.append)  # fmt: skip
    assert [(p.kind, p.index, p.text) for p in seen] == [
        ("started", 0, "?sees('cat'){"), ("call", 0, "?sees('cat'){"),
        ("returned", 0, "?sees('cat'){"), ("finished", 0, "?sees('cat'){"),
        ("started", 1, "go(10);}"), ("skipped", 1, "go(10);}"),
    ]  # fmt: skip
    assert seen[2].value is False


def test_a_call_that_fails_is_not_shown_as_returned() -> None:
    seen: list[Progress] = []
    server = ScriptedServer(ROVER, ["say('a');go(10);", "say('b');"])
    run(server, Rover(go=OSError("stuck")), on_progress=seen.append)
    assert [(p.kind, str(p.call or "")) for p in seen if p.epoch == 0] == [
        ("started", ""), ("call", "say('a')"), ("returned", "say('a')"), ("finished", ""),
        ("started", ""), ("call", "go(10)"), ("failed", "go(10)"),
    ]  # fmt: skip
    assert next(p.reason for p in seen if p.kind == "failed") == "OSError: stuck"


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
    """A value like numpy's scalars."""

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
