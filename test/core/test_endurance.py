"""Clocks and listeners after a year."""

import pytest

from test import endurance
from timely_llm.core.clock import VirtualClock
from timely_llm.core.slo import Listener

YEAR_S = 366 * 86_400.0


@endurance.steps
@pytest.mark.parametrize("begin_s", [0.0, YEAR_S])
def test_a_listener_at_the_speed_of_the_words_never_waits(begin_s: float, steps: int) -> None:
    listener = Listener(5.0)
    for word in range(steps):
        listener.receive(" so", begin_s + 0.2 * word)
    end_s = begin_s + 0.2 * steps
    assert listener.stalled_s < 1e-3
    assert listener.credit_s(end_s) == pytest.approx(0.0, abs=1e-3)


@endurance.steps
@pytest.mark.parametrize("begin_s", [0.0, YEAR_S])
def test_the_virtual_clock_keeps_time(begin_s: float, steps: int) -> None:
    clock = VirtualClock(begin_s)
    for _ in range(steps):
        clock.advance(0.0217)
    assert clock.now() - begin_s == pytest.approx(0.0217 * steps, rel=1e-6)
