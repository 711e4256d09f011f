"""An exception of a callback is one line in the log, and its caller gets an answer."""

from __future__ import annotations

import asyncio
import inspect
import time

import pytest
from rcl_interfaces.msg import Parameter
from rcl_interfaces.srv import SetParameters, SetParametersAtomically

from timely_llm import srv
from timely_llm.core.request import ErrorCode
from timely_llm.ros import guarded
from timely_llm.ros.guarded import Guard, failure


class Log:
    """A logger that remembers."""

    def __init__(self) -> None:
        self.errors: list[str] = []
        self.traces: list[str] = []

    def error(self, words: str) -> None:
        self.errors.append(words)

    def debug(self, words: str) -> None:
        self.traces.append(words)


@pytest.fixture
def log() -> Log:
    return Log()


def fails(value: object) -> None:
    raise ValueError(f"{value} \ud800\nsecond line")


def test_an_exception_is_one_short_line_that_can_be_sent(log: Log) -> None:
    guard = Guard("a call", lambda: log)
    assert guard.wrap(fails, lambda sentence, value: (sentence, value))(7) == (
        r"a call failed: ValueError: 7 \ud800", 7,
    )  # fmt: skip
    assert log.errors == [r"a call failed: ValueError: 7 \ud800"]
    (trace,) = log.traces
    assert "in fails" in trace
    trace.encode()
    long = Guard("a call", lambda: log).wrap(fails, lambda sentence, value: sentence)("x" * 9999)
    assert len(long) == guarded.MAX_SENTENCE


def test_what_fails_again_and_again_is_counted(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    callback = Guard("it", lambda: log).wrap(fails)
    for _ in range(1000):
        assert callback(1) is None
    assert len(log.errors) == 1
    now += guarded.REPEAT_S
    callback(1)
    assert log.errors[1].endswith("(and 999 times before)")


def test_a_coroutine_stays_one(log: Log) -> None:
    async def slow(value: int) -> int:
        if value < 0:
            raise KeyError(value)
        return value

    callback = Guard("it", lambda: log).wrap(slow, lambda sentence, value: sentence)
    assert inspect.iscoroutinefunction(callback)
    assert asyncio.run(callback(3)) == 3
    assert asyncio.run(callback(-3)) == "it failed: KeyError: -3"


def test_a_call_that_failed_is_answered_as_its_interface_can_say_it() -> None:
    request, response = srv.RegisterSkillSet.Request(), srv.RegisterSkillSet.Response(name="half")
    answer = failure("it failed", request, response)
    assert (answer.error_code, answer.error_msg) == (ErrorCode.ENGINE_FAILED, "it failed")
    assert answer.name == ""
    assert failure("it failed", None, srv.ListRequests.Response()).requests == []
    several = SetParameters.Request(parameters=[Parameter(name="policy")] * 3)
    answer = failure("it failed", several, SetParameters.Response())
    assert [(r.successful, r.reason) for r in answer.results] == [(False, "it failed")] * 3
    answer = failure("it failed", several, SetParametersAtomically.Response())
    assert (answer.result.successful, answer.result.reason) == (False, "it failed")
