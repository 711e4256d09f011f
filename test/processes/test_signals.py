"""Signals that ask a process to end."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from timely_llm.processes import signals


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    before = {signum: signal.getsignal(signum) for signum in signals.ENDING}
    yield
    for signum, handler in before.items():
        signal.signal(signum, handler)


def note(signum: int, frame: object) -> None: ...


def test_all_signals_that_ask_to_end_are_handled() -> None:
    for signum in signals.ENDING:
        signal.signal(signum, signal.SIG_DFL)
    before = signals.handle(signals.ENDING, note)
    assert set(before) == {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}
    assert all(signal.getsignal(signum) is note for signum in signals.ENDING)


def test_a_process_started_to_outlive_its_terminal_does() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    assert signal.SIGHUP not in signals.handle(signals.ENDING, note)
    assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    assert signal.getsignal(signal.SIGTERM) is note
