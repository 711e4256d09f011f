"""Each level of /diagnostics has its reason."""

from __future__ import annotations

from typing import Any

import pytest
from diagnostic_msgs.msg import DiagnosticStatus

from timely_llm import msg
from timely_llm.core.request import ErrorCode, PlanResult, StreamResult
from timely_llm.ros.server.health import Health

OK, WARN, ERROR = DiagnosticStatus.OK, DiagnosticStatus.WARN, DiagnosticStatus.ERROR


def result(code: ErrorCode = ErrorCode.NONE, utility: float = 1.0) -> PlanResult:
    return PlanResult("r", "a", code, "", "", 1, 0.1, 0.1, utility, 1, 1, 0)


@pytest.fixture
def health() -> Health:
    made = Health("/lab/plan_server")
    made.configured("simulated", max_requests=10, kv_tokens=1000, now=100.0)
    return made


def seen(health: Health, **fields: Any) -> None:
    health.seen(msg.ServerStats(**({"free_kv_tokens": 900, "steps": 1} | fields)), 100.0)


def test_all_is_well(health: Health) -> None:
    seen(health, queued=1, running=2, step_time=0.025, guessed_tokens=40, right_guesses=12)
    status = health.status(101.0, "active")
    assert (status.level, status.message) == (OK, "serving")
    assert (status.name, status.hardware_id) == ("lab/plan_server: serving", "simulated")
    values = {value.key: value.value for value in status.values}
    assert values["requests served"] == "3 of 10"
    assert values["free KV"] == "90.0%"
    assert values["right guesses"] == "12 of 40"


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"queued": 5, "suspended": 4}, "9 of at most 10 requests are served"),
        ({"free_kv_tokens": 40}, "4% of the KV memory is free"),
        ({"duration_error": 0.75}, "execution times are mispredicted by 75%"),
    ],
)
def test_what_may_become_a_problem_is_a_warning(
    health: Health, fields: dict[str, Any], message: str
) -> None:
    seen(health, **fields)
    status = health.status(101.0, "active")
    assert (status.level, status.message) == (WARN, message)


def test_a_server_that_does_not_serve_is_a_warning(health: Health) -> None:
    seen(health)
    assert health.status(101.0, "inactive").message == "the server is inactive"
    status = Health("/plan_server").status(500.0, "unconfigured")
    assert (status.level, status.message) == (WARN, "the server is unconfigured")


def test_late_plans_are_a_warning_once_there_are_some(health: Health) -> None:
    seen(health)
    for _ in range(7):
        health.ended(result(utility=-0.5), 100.0)
    assert health.status(101.0, "active").level == OK
    health.ended(result(ErrorCode.EXPIRED), 100.0)
    status = health.status(101.0, "active")
    assert (status.level, status.message) == (WARN, "100% of the last 8 requests were served late")


def test_answers_that_break_their_promise_are_late_too(health: Health) -> None:
    seen(health)
    for code in (ErrorCode.NONE, ErrorCode.CANCELED, ErrorCode.UNKNOWN_CONVERSATION):
        for _ in range(8):
            health.ended(StreamResult("r", "a", code, "", slo_met=code is ErrorCode.NONE), 100.0)
    assert health.status(101.0, "active").level == OK
    for _ in range(4):
        health.ended(StreamResult("r", "a", ErrorCode.NONE, "", slo_met=False), 100.0)
    status = health.status(101.0, "active")
    assert (status.level, status.message) == (WARN, "33% of the last 12 requests were served late")


def test_an_engine_that_failed_is_an_error_for_a_while(health: Health) -> None:
    seen(health)
    health.ended(result(ErrorCode.ENGINE_FAILED), 99.0)
    status = health.status(101.0, "active")
    assert (status.level, status.message) == (ERROR, "the engine failed 2 s ago")
    health.seen(msg.ServerStats(free_kv_tokens=900), 200.0)
    assert health.status(200.0, "active").level == OK


def test_an_engine_that_does_not_answer_is_an_error(health: Health) -> None:
    seen(health)
    status = health.status(110.0, "active")
    assert status.level == ERROR
    assert status.message == "the engine's thread has not answered for 10 s"
