"""The watchdog."""

from __future__ import annotations

import math
import threading

import pytest

from timely_llm.serving.server.watchdog import SLOW, ThreadWatchdog


def looked(watchdog: ThreadWatchdog, start_s: float, seconds: float) -> float:
    """Look at a thread for some seconds; return the result of the last look."""
    overdue_s, now = 0.0, start_s
    while now < start_s + seconds and not overdue_s:
        now += watchdog.look_s
        overdue_s = watchdog.overdue_s(now)
    return overdue_s


def test_work_that_takes_too_long_is_found() -> None:
    watchdog = ThreadWatchdog(60.0)
    watchdog.begins()
    assert looked(watchdog, 0.0, 59.0) == 0.0
    assert looked(watchdog, 59.0, 3.0) == pytest.approx(60.0, abs=1.0)


def test_slow_work_has_more_time() -> None:
    watchdog = ThreadWatchdog(60.0)
    watchdog.begins(slow=True)
    assert looked(watchdog, 0.0, 60.0 * SLOW - 1.0) == 0.0
    assert looked(watchdog, 60.0 * SLOW - 1.0, 3.0) >= 60.0 * SLOW


def test_a_thread_that_goes_on_or_rests_does_not_hang() -> None:
    watchdog = ThreadWatchdog(1.0)
    for number in range(1000):
        watchdog.begins()
        assert watchdog.overdue_s(0.25 * number) == 0.0
    watchdog.idle()
    assert looked(watchdog, 250.0, 1000.0) == 0.0
    watchdog.begins()
    assert looked(watchdog, 1250.0, 0.9) == 0.0


def test_time_in_which_the_process_was_stopped_does_not_count() -> None:
    watchdog = ThreadWatchdog(60.0)
    watchdog.begins()
    assert watchdog.overdue_s(1.0) == watchdog.overdue_s(1.5) == 0.0
    assert watchdog.overdue_s(10_000.0) == 0.0
    assert looked(watchdog, 10_000.0, 50.0) == 0.0
    assert looked(watchdog, 10_050.0, 20.0) > 0.0


def test_no_limit_is_never_reached() -> None:
    watchdog = ThreadWatchdog(math.inf)
    watchdog.begins()
    assert looked(watchdog, 0.0, 1000.0) == 0.0


def test_a_thread_that_ends_without_a_word_is_found() -> None:
    watchdog, over, said = ThreadWatchdog(math.inf), threading.Event(), list[float]()
    watchdog.look_s = 0.01
    thread = threading.Thread(target=lambda: None)
    thread.start()
    watchdog.started(thread, over, said.append)
    assert said == [0.0]
