import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from timely_llm.core.slo import REAL_TIME, VOICE, SloClass
from timely_llm.experiments.results.metrics import Row, plain
from timely_llm.experiments.results.talks import DEFINITIONS, gaps_until, percentile, talk_row
from timely_llm.experiments.virtual.outcome import ConversationOutcome
from timely_llm.experiments.virtual.slice_workload import talk

REQUIRED = (
    *("attainment", "rt_attainment", "nrt_attainment", "ttft_attainment", "tpot_attainment"),
    *("completion_s", "rt_completion_s", "nrt_completion_s", "max_gap_s", "share_served"),
)


def heard(
    *times_s: float, kind: SloClass = VOICE, finished: bool = True, stalled_s: float = 0.0
) -> ConversationOutcome:
    """Return the outcome of a question at 10 s, with tokens `times_s` seconds later."""
    asked = talk("one", kind, 10.0, max(len(times_s), 1), 160, 60)
    return ConversationOutcome(
        asked, finished, tuple(10.0 + time_s for time_s in times_s), stalled_s
    )


def only(*talks: ConversationOutcome) -> Row:
    return talk_row(talks)


def test_a_conversation_needs_its_first_token_and_the_mean_of_the_others_in_time() -> None:
    good = heard(0.5, 0.625, 0.75)
    uneven = heard(0.5, 0.74, 0.75)  # the mean counts, not each
    late = heard(1.25, 1.375, 1.5)
    slow = heard(0.5, 0.75, 1.0)
    row = only(good, uneven, late, slow)
    assert row["attainment"] == row["nrt_attainment"] == 0.5
    assert (row["ttft_attainment"], row["tpot_attainment"]) == (0.75, 0.75)
    assert row["share_served"] == 1.0
    assert row["completion_s"] == row["nrt_completion_s"] == pytest.approx(1.0)
    assert row["max_gap_s"] == pytest.approx(0.25)


def test_what_adding_up_times_costs_is_forgiven_in_all_shares_alike() -> None:
    row = only(heard(1.0 + 1e-10, 1.125 + 1.5e-10))
    assert row["attainment"] == row["ttft_attainment"] == row["tpot_attainment"] == 1.0


def test_a_real_time_task_needs_its_whole_answer_by_its_deadline() -> None:
    late_start = heard(1.2, 1.3, 1.5, kind=REAL_TIME)
    late = heard(0.1, 0.2, 1.75, kind=REAL_TIME)
    row = only(late_start, late)
    assert row["attainment"] == row["rt_attainment"] == 0.5
    assert only(late_start, late, heard(0.5, 0.6))["objective"] == 101.0, "Eq. 1"
    assert row["completion_s"] == row["rt_completion_s"] == pytest.approx(1.625)


def test_an_answer_that_is_cut_off_misses_its_slo_and_has_no_completion() -> None:
    cut_off = heard(0.5, 0.6, finished=False, stalled_s=0.4)
    row = only(cut_off, heard(0.5, 0.6), heard(finished=False))
    assert (
        row["attainment"] == row["tpot_attainment"] == row["share_served"] == pytest.approx(1 / 3)
    )
    assert row["ttft_attainment"] == pytest.approx(2 / 3)
    assert row["stalled_s"] == pytest.approx(0.2), "an answer without a token has no listener"
    assert row["completion_s"] == pytest.approx(0.6)
    assert plain(row)["ttft_p95_s"] is None, "one of three never had a first token"


def test_gaps_and_stalls_are_those_of_listeners() -> None:
    machine = heard(0.1, 1.4, kind=REAL_TIME, stalled_s=9.0)
    row = only(heard(0.5, 1.0, stalled_s=0.25), heard(0.5, 0.75, stalled_s=0.75), machine)
    assert row["max_gap_s"] == pytest.approx(0.5)
    assert (row["stalled_s"], row["max_stall_s"]) == (0.5, 0.75)


def test_a_measure_of_no_request_has_no_value() -> None:
    row = plain(only(heard(0.5, 0.6)))
    assert (row["rt_attainment"], row["rt_completion_s"]) == (None, None)
    empty = plain(only())
    assert empty.pop("requests") == 0
    assert set(empty.values()) == {None}


def test_every_column_is_there_and_defined() -> None:
    row = talk_row([heard(0.5, 0.6)], policy="slice", seed=1)
    assert set(REQUIRED) <= row.keys()
    assert row.keys() == {"policy", "seed", *DEFINITIONS}


def test_gaps_are_counted_until_a_moment() -> None:
    assert gaps_until(heard(0.5, 0.75, 1.5), 11.0) == [0.25]
    assert gaps_until(heard(), 11.0) == []


@given(st.lists(st.floats(0, 1e6), min_size=1), st.floats(0.01, 1.0))
def test_a_percentile_is_a_value_that_its_share_does_not_exceed(
    values: list[float], part: float
) -> None:
    found = percentile(values, part)
    assert found in values
    assert sum(value <= found for value in values) >= part * len(values)
    below = [value for value in values if value < found]
    assert len(below) < part * len(values)
    assert math.isnan(percentile([], part))
