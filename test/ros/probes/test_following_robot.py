"""When a robot that follows its plan by topics gives its request up."""

from timely_llm.ros.probes.following_robot import HOPE_S, LOST_S, Hope


def test_a_request_is_lost_when_a_dispatcher_does_not_know_it_for_some_time() -> None:
    hope = Hope(0.0)
    hope.known(10.0)
    hope.unknown(11.0)
    hope.unknown(12.0)
    assert not hope.lost(11.0 + LOST_S)
    assert hope.lost(11.1 + LOST_S)
    hope.known(19.0)
    assert not hope.lost(20.0), "it was taken over"


def test_a_request_is_lost_in_bounded_time_though_dispatchers_die_one_after_the_other() -> None:
    hope = Hope(0.0)
    for life in range(int(HOPE_S)):
        hope.unknown(float(life))
        assert not hope.lost(float(life))
        hope.away()
    assert hope.lost(HOPE_S + 0.1)
