import pytest
from hypothesis import given
from hypothesis import strategies as st

from test.policies.deadline.test_streams import SLOW
from timely_llm.policies.engine_share import (
    FREE_ROW,
    UTIL,
    EngineShare,
    long_room,
    long_steps,
    steps_of_rows,
)

needs = st.lists(st.floats(0.5, 40.0), max_size=12)


def test_shares_add_up_as_in_table_ii() -> None:
    share = EngineShare(SLOW.steps_s, [10.0] * 3 + [1 / 0.12] * 4)
    assert share.offer(4.0, 0.95) and share.offer(4.0, 0.95)
    assert share.used == pytest.approx(0.939, abs=0.001)
    assert not share.offer(12.0, 0.95)
    assert share.used == pytest.approx(0.939, abs=0.001)


@given(needs, st.floats(0.2, 1.0))
def test_what_is_promised_fits_and_is_the_same_in_any_order(
    offered: list[float], most: float
) -> None:
    share = EngineShare(SLOW.steps_s)
    kept = [need for need in offered if share.offer(need, most)]
    assert share.used <= most
    for order in (kept, kept[::-1], sorted(kept)):
        assert EngineShare(SLOW.steps_s, order).used == pytest.approx(share.used)


def test_a_stream_costs_a_row_of_its_steps_and_alone_whole_steps() -> None:
    assert EngineShare(SLOW.steps_s, [10.0]).used == pytest.approx(10.0 * 0.026)
    assert EngineShare(SLOW.steps_s, [10.0, 4.0]).used == pytest.approx(6.0 * 0.026 + 4.0 * 0.035)


def test_more_rows_than_a_step_has_take_turns() -> None:
    all_s = SLOW.steps_s(range(1, 9), 100.0)
    steps_s = steps_of_rows(SLOW, 4, 100.0)
    assert steps_s(range(1, 5)) == pytest.approx(all_s[:4])
    assert steps_s(range(3, 9)) == pytest.approx(
        [*all_s[2:4], *(all_s[3] * rows / 4 for rows in (5, 6, 7, 8))]
    )
    assert steps_s(range(6, 8)) == pytest.approx([all_s[3] * 6 / 4, all_s[3] * 7 / 4])


@pytest.mark.parametrize(
    ("one_s", "row_s", "token_s", "long"),
    [
        (0.0796, 0.0009, 0.1, True),  # Llama 3 8B on a Jetson AGX Orin
        (0.0796, 0.0009, 0.25, False),  # three of its steps fit
        (0.0218, 0.00015, 0.1, False),  # on an RTX 4090
        (0.026, 0.009, 0.1, False),  # SLICE's testbed
        (0.06, 0.005, 0.1, False),  # a row takes 5 % of the engine
    ],
)
def test_steps_are_long_where_few_fit_into_the_time_of_a_token_and_rows_are_free(
    one_s: float, row_s: float, token_s: float, long: bool
) -> None:
    least_s, most_s = long_steps(one_s, row_s)
    assert (least_s <= token_s < most_s) == long


@given(st.floats(1e-3, 1.0), st.floats(0.0, 1.0), st.floats(1e-3, 10.0))
def test_a_row_of_a_rate_that_the_engine_has_is_free_where_steps_are_long(
    one_s: float, row_s: float, token_s: float
) -> None:
    least_s, most_s = long_steps(one_s, row_s)
    if least_s <= token_s < most_s and token_s >= one_s:
        assert row_s / token_s <= FREE_ROW * (1.0 + 1e-9)


def test_steps_are_not_long_where_answers_wait_for_rows() -> None:
    def longest_s(full_s: float) -> float:
        return long_steps(0.02, 0.0001, full_s)[1]

    assert longest_s(0.0203) == 0.04  # batches of four: two steps fit into 50 ms
    assert longest_s(0.055) == 0.055
    assert longest_s(0.1) == longest_s(float("inf")) == pytest.approx(0.06)


@given(st.floats(0.0, 2.0), st.floats(0.0, 2.0))
def test_usual_work_takes_the_room_of_long_steps_and_no_more(less: float, more: float) -> None:
    less, more = sorted((less, more))
    assert 0.0 <= long_room(more) <= long_room(less) < 1.0 - UTIL
