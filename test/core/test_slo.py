"""Service levels and their notation."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from timely_llm.core.errors import ConfigurationError, RequestError
from timely_llm.core.slo import REAL_TIME, SLO_CLASSES, TEXT, VOICE, Slo, SloClass, parse_slo_class


def test_the_papers_classes() -> None:
    assert [c.slo.rate for c in SLO_CLASSES] == [8.0, 10.0, 20.0]
    assert (REAL_TIME.slo.deadline_s, REAL_TIME.slo.real_time) == (1.5, True)
    assert not VOICE.slo.real_time
    assert TEXT.weight < REAL_TIME.weight


def test_an_answer_meets_both_times_or_its_deadline() -> None:
    text = Slo(ttft_s=1.0, tpot_s=0.1)
    assert text.met(1.0, 0.1, 99.0)
    assert not text.met(1.01, 0.1, 2.0)
    assert not text.met(1.0, 0.101, 2.0)
    machine = Slo(deadline_s=1.5)
    assert machine.met(9.0, 9.0, 1.5)
    assert not machine.met(0.1, 0.01, 1.51)


@pytest.mark.parametrize(
    "values", [{"ttft_s": 0.0}, {"tpot_s": -1.0}, {"tpot_s": math.nan}, {"deadline_s": 0.0},
               {"ttft_s": math.inf}, {"deadline_s": 1e9}]
)  # fmt: skip
def test_times_out_of_range_are_refused(values: dict[str, float]) -> None:
    with pytest.raises(RequestError, match="must be above 0 and at most 86400 s, not"):
        Slo(**values)


def test_the_notation() -> None:
    assert parse_slo_class("voice:ttft=1,rate=8") == VOICE
    assert parse_slo_class("real-time: rate=20, deadline=1.5, weight=100") == REAL_TIME
    assert parse_slo_class("plain") == SloClass("plain", Slo())


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (":rate=8", "it needs a name before the colon"),
        ("a:rate", "'rate' is not one of ttft, rate, deadline, weight"),
        ("a:speed=8", "'speed=8' is not one of"),
        ("a:rate=0", "'rate=0' is not one of"),
        ("a:rate=nan", "is not one of"),
        ("a:deadline=1e5", "deadline must be above 0 and at most 86400 s"),
    ],
)
def test_what_means_nothing_is_one_sentence(text: str, problem: str) -> None:
    with pytest.raises(ConfigurationError, match="service level '") as caught:
        parse_slo_class(text)
    assert problem in str(caught.value)


@given(st.text(max_size=40))
def test_no_text_breaks_the_notation(text: str) -> None:
    try:
        made = parse_slo_class(text)
    except ConfigurationError as error:
        assert "\n" not in str(error)
    else:
        assert made.name
