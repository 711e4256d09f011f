from __future__ import annotations

import math

from test.demo.two_servers import BACK_S, KILLED_S, run_until


def test_a_server_that_was_killed_is_gone_starts_and_is_ready_again() -> None:
    gone, starting, back = (run_until(t).servers["s2"] for t in (3.0, 4.5, BACK_S))
    assert (gone.is_gone, gone.starts) == (True, False)
    assert gone.outages == [(KILLED_S, math.inf)]
    assert (starting.is_gone, starting.starts) == (True, True)
    assert (back.is_gone, back.starts) == (False, False)
    assert back.outages == [(KILLED_S, BACK_S)]


def test_a_second_life_in_a_log_shows_that_the_first_one_ended() -> None:
    read_later = run_until(watched=False)
    assert read_later.servers["s2"].outages == [(1.14, BACK_S)]
    assert read_later.servers["s1"].outages == []
