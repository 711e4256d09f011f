import math
from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from timely_llm.core.request import ErrorCode, StreamResult
from timely_llm.core.slo import REAL_TIME, VOICE, SloClass
from timely_llm.experiments.results.metrics import MeasuredRow, plain
from timely_llm.experiments.results.talks import (
    DEFINITIONS,
    gaps_until,
    percentile,
    qoe,
    talk_row,
)
from timely_llm.experiments.virtual.clients import SimulatedPerson
from timely_llm.experiments.virtual.outcome import ConversationOutcome
from timely_llm.experiments.virtual.slice_workload import talk

REQUIRED = (
    *("attainment", "rt_attainment", "nrt_attainment", "ttft_attainment", "tpot_attainment"),
    *("objective", "qoe", "share_first", "share_finished"),
    *("completion_s", "rt_completion_s", "nrt_completion_s", "max_gap_s", "share_served"),
    "share_refused",
)


def heard(
    *times_s: float, kind: SloClass = VOICE, finished: bool = True, stalled_s: float = 0.0
) -> ConversationOutcome:
    """Return the outcome of a question at 10 s, with tokens `times_s` seconds later."""
    asked = talk("one", kind, 10.0, max(len(times_s), 1), 160, 60)
    return ConversationOutcome(
        asked, finished, tuple(10.0 + time_s for time_s in times_s), stalled_s
    )


def only(*talks: ConversationOutcome) -> MeasuredRow:
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


def test_a_refused_answer_did_not_meet_its_service_level() -> None:
    asked = talk("one", VOICE, 10.0, 8, 160, 60)
    person = SimulatedPerson(asked)
    person.result = StreamResult("one", "ann", error_code=ErrorCode.QUEUE_FULL, error_msg="full")
    row = only(person.outcome, heard(0.5, 0.6))
    for share in ("attainment", "nrt_attainment", "ttft_attainment", "tpot_attainment"):
        assert row[share] == 0.5
    assert (row["share_first"], row["share_finished"]) == (0.5, 0.5)
    assert (row["objective"], row["qoe"]) == (1.0, 0.5)
    person.conversation = talk("two", REAL_TIME, 10.0, 8, 160, 60)
    assert only(person.outcome)["rt_attainment"] == only(person.outcome)["objective"] == 0.0


def test_the_objective_is_the_weight_of_all_that_met_their_service_level() -> None:
    met = [heard(0.5, 0.6), heard(0.1, 1.4, kind=REAL_TIME), heard(0.2, 1.5, kind=REAL_TIME)]
    missed = [heard(1.1, 1.2), heard(0.1, 1.6, kind=REAL_TIME), heard(0.1, finished=False)]
    assert only(*met, *missed)["objective"] == 1.0 + 100.0 + 100.0


def test_shares_of_first_tokens_and_of_whole_answers_differ() -> None:
    row = only(heard(0.5), heard(0.5, finished=False), heard(finished=False), heard(9.0))
    assert (row["share_first"], row["share_finished"]) == (0.75, 0.5)


# Tokens are ideally consumed 1 s, 1.125 s, 1.25 s, ... after the question.
@pytest.mark.parametrize(("times_s", "wanted", "expected"), [
    ((0.5, 0.6, 0.7), 3, 1.0),                  # early tokens gain nothing
    ((2.0, 2.125, 2.25), 3, 1 / 9),             # late by 3 x 1 s, of 1.25 + 1.125 + 1
    ((1.0, 1.5, 1.6), 3, 0.5),                  # by 2 x 0.375 s, of 0.625 + 0.5 + 0.375
    ((1.0, 1.125), 4, 1 - 0.125 / 0.75),        # the third one never came, 0.125 s to the end
    ((2.0,), 2, 0.0),                           # by 1 s, and the second one never came
    ((1.0,), 1, 1.0),
    ((), 3, 0.0),
])  # fmt: skip
def test_quality_of_experience_is_what_is_left_of_the_area_of_timely_words(
    times_s: tuple[float, ...], wanted: int, expected: float
) -> None:
    asked = talk("one", VOICE, 10.0, wanted, 160, 60)
    came = tuple(10.0 + time_s for time_s in times_s)
    outcome = ConversationOutcome(asked, len(times_s) == wanted, came, 0.0)
    assert qoe(outcome) == pytest.approx(expected)


def test_quality_of_experience_is_a_mean_over_people() -> None:
    machine = heard(9.0, 9.1, kind=REAL_TIME)
    row = only(heard(0.5, 0.6), heard(finished=False), heard(1.0, 1.5, 1.6), machine)
    assert row["qoe"] == pytest.approx((1.0 + 0.0 + 0.5) / 3)


pauses_s = st.lists(st.floats(0.0, 3.0), min_size=1, max_size=12)


@given(pauses_s, st.integers(0, 5), st.floats(0.0, 5.0))
def test_quality_of_experience_lies_in_0_to_1_and_falls_with_a_later_answer(
    pauses_s: list[float], missing: int, later_s: float
) -> None:
    asked = talk("one", VOICE, 10.0, len(pauses_s) + missing, 160, 60)
    times_s = [10.0 + time_s for time_s in accumulate(pauses_s)]
    found = qoe(ConversationOutcome(asked, not missing, tuple(times_s), 0.0))
    assert 0.0 <= found <= 1.0
    later = ConversationOutcome(asked, not missing, tuple(t + later_s for t in times_s), 0.0)
    if not missing:
        assert qoe(later) <= found + 1e-9
    due = all(t <= 11.0 + place / 8 for place, t in enumerate(times_s))
    if due and not missing:
        assert found == 1.0


@given(pauses_s, st.data())
def test_one_token_that_comes_later_without_a_later_end_lowers_it(
    pauses_s: list[float], data: st.DataObject
) -> None:
    times_s = [10.0 + time_s for time_s in accumulate(pauses_s)]
    place = data.draw(st.integers(0, len(times_s) - 1))
    following_s = times_s[min(place + 1, len(times_s) - 1)]
    changed = list(times_s)
    changed[place] = data.draw(st.floats(times_s[place], following_s))
    asked = talk("one", VOICE, 10.0, len(times_s), 160, 60)
    before, after = (
        ConversationOutcome(asked, True, tuple(each), 0.0) for each in (times_s, changed)
    )
    if last_lag_s(changed) <= last_lag_s(times_s):
        assert qoe(after) <= qoe(before) + 1e-9


def last_lag_s(times_s: list[float]) -> float:
    return max(max(t - 11.0 - place / 8 for place, t in enumerate(times_s)), 0.0)


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
