from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from timely_llm.identity.authenticator import CounterWindow, SessionWindows


@given(st.lists(st.integers(-2, 60), max_size=200), st.integers(1, 20))
def test_each_counter_is_taken_once_and_none_that_is_too_old(
    counters: list[int], width: int
) -> None:
    window, seen, largest = CounterWindow(width), set[int](), 0
    for counter in counters:
        fits = counter >= 1 and counter > largest - width and counter not in seen
        assert (window.take(counter) == "") == fits
        if fits:
            seen.add(counter)
            largest = max(largest, counter)


@given(st.permutations(range(1, 20)))
def test_counters_within_the_width_are_taken_in_any_order(counters: list[int]) -> None:
    window = CounterWindow(20)
    assert not any(window.take(counter) for counter in counters)
    assert all(window.take(counter) == "it came before" for counter in counters)


def test_a_large_jump_costs_no_memory() -> None:
    window = CounterWindow(8)
    assert window.take(2**64 - 1) == ""
    assert window.take(2**64 - 1) == "it came before"
    assert window.take(2**64 - 9) == "its counter is too old"
    assert window.take(2**64 - 8) == ""


@given(st.lists(st.tuples(st.integers(1, 12), st.integers(1, 4)), max_size=200), st.integers(1, 4))
def test_no_message_of_any_session_is_taken_twice(
    messages: list[tuple[int, int]], most: int
) -> None:
    sessions, taken = SessionWindows(most), set[tuple[int, int]]()
    for session, counter in messages:
        if not sessions.take(session, counter):
            assert (session, counter) not in taken
            taken.add((session, counter))


def test_each_later_client_of_an_agent_is_taken_and_so_is_one_that_goes_on_speaking() -> None:
    sessions = SessionWindows(3)
    for start in range(2, 40):
        assert sessions.take(start, 1) == ""
        assert sessions.take(1, start) == ""
    assert sessions.take(2, 2) == "its session is too old: the client's clock may be behind"
