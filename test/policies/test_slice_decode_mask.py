"""SLICE's examples, and what holds whatever the rates are."""

import math
from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from timely_llm.core.errors import ConfigurationError
from timely_llm.engines.simulated import PROFILES
from timely_llm.policies.slice import (
    SliceTask,
    by_rate,
    decode_mask,
    keep_running,
    period_s,
    select,
    shorter_first,
    tpot_of_deadline,
)
from timely_llm.policies.step_time import StepTime

TABLE_S = (0.026, 0.035, 0.044, 0.054, 0.063, 0.072, 0.081, 0.095, 0.1286)
"""l(1) to l(9) of the paper's testbed (Figure 1)."""


def step_s(rows: int) -> float:
    return TABLE_S[min(rows, 9) - 1] + 0.0004 * max(rows - 9, 0)


def tasks(*rates: float, utility: float = 1.0) -> list[SliceTask]:
    return [SliceTask(str(number), 1.0 / rate, utility) for number, rate in enumerate(rates)]


def test_figure_4() -> None:
    mask = decode_mask([6, 4, 2, 1])
    assert [list(map(int, row)) for row in mask] == [
        [1, 1, 1, 1, 1, 1],
        [1, 1, 1, 1, 0, 0],
        [1, 1, 0, 0, 0, 0],
        [1, 0, 0, 0, 0, 0],
    ]


def test_a_cycle_lasts_as_long_as_its_columns() -> None:
    # Columns 1; 2; 3, 4; 5, 6 of Figure 4 have 4, 3, 2, 1 rows.
    expected = 0.054 + 0.044 + 2 * 0.035 + 2 * 0.026
    assert period_s(Counter([6, 4, 2, 1]), step_s) == pytest.approx(expected)
    assert period_s(Counter(), step_s) == 0.0


def test_table_2_fits_into_963_milliseconds() -> None:
    """Three, four and two tasks of 100, 120 and 250 ms a token, with Algorithm 3's ceilings."""
    nine = [
        SliceTask(str(n), tpot_s) for n, tpot_s in enumerate([0.1] * 3 + [0.12] * 4 + [0.25] * 2)
    ]
    assert [task.columns for task in nine] == [10] * 3 + [9] * 4 + [4] * 2
    chosen, left = select(nine, step_s)
    assert (len(chosen), left) == (9, [])
    assert period_s(Counter(task.columns for task in nine), step_s) == pytest.approx(
        0.963, abs=5e-4
    )


def test_the_highest_utility_rates_are_selected_until_one_does_not_fit() -> None:
    urgent = SliceTask("urgent", 0.05, 100.0)  # utility rate 5
    slow, fast = SliceTask("slow", 0.2, 1.0), SliceTask("fast", 0.02, 1.0)  # 0.2 and 0.02
    chosen, left = select([fast, slow, urgent], lambda rows: 0.04 + 0.001 * rows)
    assert chosen == [urgent, slow]
    assert left == [fast], "fifty columns of 41 ms and more are no second"


def test_the_first_that_does_not_fit_ends_the_selection() -> None:
    wide, narrow = SliceTask("wide", 0.01, 50.0), SliceTask("narrow", 1.0, 0.1)
    chosen, left = select([wide, narrow], lambda rows: 0.02)
    assert (chosen, left) == ([], [wide, narrow])


@given(st.lists(st.sampled_from([4, 8, 10, 20]), max_size=24))
@example([8] * 19)  # all of them would fit again, but the eighth does not
def test_where_step_times_fall_the_first_that_does_not_fit_still_ends_it(rates: list[int]) -> None:
    released = PROFILES["rtx4060ti-released"].step_s
    asked = tasks(*rates)
    ranked = sorted(asked, key=lambda task: task.utility_rate, reverse=True)
    literal: list[SliceTask] = []
    for task in ranked:
        together = Counter(one.columns for one in [*literal, task])
        if period_s(together, released) >= 1.0:
            break
        literal.append(task)
    assert select(asked, released, grows=False)[0] == literal


def test_a_table_that_falls_is_known() -> None:
    assert not StepTime(table_s=PROFILES["rtx4060ti-released"].table_s).grows
    assert StepTime(table_s=TABLE_S).grows and StepTime().grows


def test_prompts_may_be_charged() -> None:
    prompt, other = SliceTask("prompt", 0.1, prefill_s=0.5), SliceTask("other", 0.1)
    assert select([other, prompt], lambda rows: 0.06)[1] == [prompt]
    assert select([other, SliceTask("free", 0.1)], lambda rows: 0.06)[1] == []


def test_what_others_take_is_in_the_cycle() -> None:
    reader = SliceTask("reader", 0.1)
    assert select([reader], lambda rows: 0.02, taken={40: 1})[0] == [reader], "it rides along"
    assert select([reader], lambda rows: 0.02 * rows, taken={41: 1})[0] == []


def test_an_engine_may_have_fewer_rows_or_less_memory() -> None:
    three = tasks(1, 1, 1)
    chosen, left = select(three, lambda rows: 0.001, rows=2)
    assert (chosen, left) == (three[:2], three[2:])
    large, small = SliceTask("large", 0.2, kv_tokens=100), SliceTask("small", 0.1, kv_tokens=10)
    assert select([large, small], lambda rows: 0.001, room=50) == ([small], [large])


def test_utilities_may_prefer_short_tasks_or_those_that_are_selected() -> None:
    assert shorter_first(2.0, 0, 50.0) == 2.0
    assert shorter_first(2.0, 100, 50.0) == 0.5
    assert keep_running(1.0, True, 3.0) == 3.0
    assert keep_running(1.0, False, 3.0) == 1.0


def test_a_deadline_is_a_time_for_each_token() -> None:
    assert tpot_of_deadline(1.5, 20) == pytest.approx(0.075)
    assert tpot_of_deadline(1.5, 20, ttft_s=0.5) == pytest.approx(0.05)
    with pytest.raises(ConfigurationError, match="must come in the 1 s"):
        tpot_of_deadline(1.0, 5, ttft_s=1.0)
    with pytest.raises(ConfigurationError, match="at least 1 token"):
        tpot_of_deadline(1.0, 0)


def test_rates_that_are_whole_need_no_column_more() -> None:
    times_s = (0.1, 0.05, 1 / 3, 0.125, 5.0, 5e-324)
    assert [SliceTask("a", tpot_s).columns for tpot_s in times_s] == [10, 20, 3, 8, 1, 1000]


counts = st.lists(st.integers(1, 40), max_size=12)


@given(counts, st.booleans())
def test_a_cycle_gives_each_task_its_columns(numbers: list[int], even: bool) -> None:
    mask = decode_mask(numbers, even=even)
    assert [sum(row) for row in mask] == numbers
    assert {len(row) for row in mask} <= {max(numbers, default=0)}
    assert all(row[0] for row in mask), "no task waits for the second column"


@given(counts)
def test_the_period_is_the_time_of_the_masks_columns(numbers: list[int]) -> None:
    columns = zip(*decode_mask(numbers), strict=True)
    expected = math.fsum(step_s(sum(column)) for column in columns)
    assert period_s(Counter(numbers), step_s) == pytest.approx(expected)


@given(counts.filter(bool))
def test_even_columns_leave_no_longer_gap_than_they_must(numbers: list[int]) -> None:
    mask = decode_mask(numbers, even=True)
    width = max(numbers)
    for row, count in zip(mask, numbers, strict=True):
        places = [place for place, takes_part in enumerate(row) if takes_part]
        # The next cycle follows at once.
        gaps = [after - before for before, after in pairwise([*places, places[0] + width])]
        assert max(gaps) <= math.ceil(width / count)


@given(
    st.lists(st.tuples(st.floats(0.02, 2.0), st.floats(0.0, 100.0)), max_size=12),
    st.floats(0.05, 2.0),
    st.integers(1, 12),
)
def test_the_selection_is_that_of_the_papers_loop(
    values: list[tuple[float, float]], cycle_s: float, rows: int
) -> None:
    asked = [SliceTask(str(number), *value) for number, value in enumerate(values)]
    chosen, left = select(asked, step_s, cycle_s, rows=rows)
    expected: list[SliceTask] = []
    for task in sorted(asked, key=lambda task: -task.utility_rate):
        together = Counter(t.columns for t in [*expected, task])
        if len(expected) == rows or period_s(together, step_s) >= cycle_s:
            break
        expected.append(task)
    assert chosen == expected
    assert {t.key for t in chosen} | {t.key for t in left} == {t.key for t in asked}
    assert len(chosen) + len(left) == len(asked)


def test_tasks_in_order_of_their_rates() -> None:
    slow, fast, too = tasks(1, 6, 6)
    assert by_rate([slow, fast, too]) == [fast, too, slow]
