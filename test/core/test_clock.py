"""The two clocks."""

import pytest

from timely_llm.core.clock import VirtualClock, WallClock


def test_virtual_time_stands_still_until_it_is_advanced() -> None:
    clock = VirtualClock(5.0)
    assert clock.now() == 5.0
    clock.advance(0.25)
    assert clock.now() == 5.25
    with pytest.raises(ValueError, match="forward"):
        clock.advance(-1.0)


def test_the_wall_never_goes_back() -> None:
    clock = WallClock()
    assert clock.now() <= clock.now()
