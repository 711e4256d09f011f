"""A client cannot fill the log."""

from __future__ import annotations

import pytest

from timely_llm.core.clock import VirtualClock
from timely_llm.ros.server.notices import MOST, PERIOD_S, Notices


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def lines() -> list[str]:
    return []


@pytest.fixture
def notices(clock: VirtualClock, lines: list[str]) -> Notices:
    return Notices(lines.append, clock.now)


def test_a_few_lines_are_written(notices: Notices, lines: list[str]) -> None:
    notices.say("requests were refused", "refused a request of 'ann': the task is empty")
    assert lines == ["refused a request of 'ann': the task is empty"]


def test_of_a_flood_some_lines_are_written_and_the_rest_is_counted(
    notices: Notices, lines: list[str], clock: VirtualClock
) -> None:
    for number in range(10_000):
        notices.say("requests were refused", f"refusal {number}")
    assert lines == [f"refusal {number}" for number in range(MOST)]
    notices.flush()
    assert len(lines) == MOST
    clock.advance(PERIOD_S)
    notices.flush()
    assert lines[MOST:] == [f"{10_000 - MOST} more requests were refused within 1 s"]
    notices.say("requests were refused", "the next one")
    assert lines[-1] == "the next one"


def test_kinds_do_not_hide_each_other(notices: Notices, lines: list[str]) -> None:
    for number in range(100):
        notices.say("requests were refused", f"refusal {number}")
    notices.say("reports were refused", "a report")
    assert lines[-1] == "a report"


def test_a_line_is_one_line(notices: Notices, lines: list[str]) -> None:
    notices.say(
        "requests were refused", "a\n[ERROR] [0.0] [plan_server]: forged\x1b[2J" + "x" * 10**6
    )
    (line,) = lines
    assert line.isprintable()
    assert len(line) < 1000
